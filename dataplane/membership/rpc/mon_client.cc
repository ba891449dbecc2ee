#include "dataplane/membership/rpc/mon_client.h"

#include <chrono>

#include "dataplane/membership/proto/mon.grpc.pb.h"
#include "dataplane/membership/rpc/map_proto.h"
#include "dataplane/membership/rpc/mon_channel.h"
#include "dataplane/membership/rpc/mon_proto.h"

namespace sarsen {

struct MonClient::Transport {
  std::unique_ptr<v1::Mon::Stub> stub;
  Address mon;
  Duration call_max{0};

  // Calls `method` of the stub; `Response` is what it fills.
  template <typename Response, typename Request, typename Method>
  Result<Response> call(Method method, const Request& request) const {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::nanoseconds(call_max.value));
    Response response;
    const grpc::Status status = (stub.get()->*method)(&context, request, &response);
    if (status.ok()) return response;
    const Error error = error_from(status);
    if (is(error, MonError::unreachable) || is(error, MonError::timed_out)) {
      return fail(make_error(static_cast<MonError>(error.code()),
                             "at " + mon + ": " + std::string(error.detail())));
    }
    return fail(error);
  }
};

namespace {

Result<ImageEntry> image_from(const Result<v1::Image>& response) {
  if (!response) return fail(response.error());
  return from_proto(*response);
}

}  // namespace

Result<std::unique_ptr<MonClient>> MonClient::create(MonClientOptions options) {
  const auto target = grpc_target(options.mon);
  if (!target) return fail(target.error());
  auto transport = std::make_unique<Transport>();
  transport->stub = v1::Mon::NewStub(make_channel(*target));
  transport->mon = std::move(options.mon);
  transport->call_max = options.call_max;
  return std::unique_ptr<MonClient>(new MonClient(std::move(transport)));
}

MonClient::MonClient(std::unique_ptr<Transport> transport) : transport_(std::move(transport)) {}
MonClient::~MonClient() = default;

Result<ImageEntry> MonClient::create_image(ImageName name, std::uint64_t size_bytes) {
  v1::CreateImageRequest request;
  to_proto(name, *request.mutable_image());
  request.set_size_bytes(size_bytes);
  return image_from(transport_->call<v1::Image>(&v1::Mon::Stub::CreateImage, request));
}

Result<std::vector<ImageEntry>> MonClient::list_images(std::string pool) {
  v1::ListImagesRequest request;
  request.set_pool(std::move(pool));
  const auto response =
      transport_->call<v1::ListImagesResponse>(&v1::Mon::Stub::ListImages, request);
  if (!response) return fail(response.error());
  std::vector<ImageEntry> images;
  for (const v1::Image& message : response->images()) {
    auto image = from_proto(message);
    if (!image) return fail(std::move(image).error());
    images.push_back(*std::move(image));
  }
  return images;
}

Result<ImageEntry> MonClient::get_image(ImageName name) {
  v1::ImageName request;
  to_proto(name, request);
  return image_from(transport_->call<v1::Image>(&v1::Mon::Stub::GetImage, request));
}

Result<ImageEntry> MonClient::resize_image(ImageName name, std::uint64_t size_bytes,
                                           bool allow_shrink) {
  v1::ResizeImageRequest request;
  to_proto(name, *request.mutable_image());
  request.set_size_bytes(size_bytes);
  request.set_allow_shrink(allow_shrink);
  return image_from(transport_->call<v1::Image>(&v1::Mon::Stub::ResizeImage, request));
}

Result<ImageEntry> MonClient::remove_image(ImageName name) {
  v1::ImageName request;
  to_proto(name, request);
  return image_from(transport_->call<v1::Image>(&v1::Mon::Stub::RemoveImage, request));
}

Result<Attached> MonClient::attach_image(AttachRequest request) {
  v1::AttachImageRequest message;
  to_proto(request, message);
  const auto response =
      transport_->call<v1::AttachImageResponse>(&v1::Mon::Stub::AttachImage, message);
  if (!response) return fail(response.error());
  auto image = from_proto(response->image());
  const auto attachment = from_proto(response->attachment());
  if (!image || !attachment) return fail(image ? attachment.error() : image.error());
  return Attached{.image = *std::move(image),
                  .attachment = *attachment,
                  .epoch = MapEpoch(response->map_epoch())};
}

Result<MapEpoch> MonClient::detach_image(DetachRequest request) {
  v1::DetachImageRequest message;
  to_proto(request, message);
  const auto response =
      transport_->call<v1::DetachImageResponse>(&v1::Mon::Stub::DetachImage, message);
  if (!response) return fail(response.error());
  return MapEpoch(response->map_epoch());
}

Result<OsdCreated> MonClient::create_osd(Uuid device, std::string node) {
  v1::CreateOsdRequest request;
  request.set_device(bytes_of(device));
  request.set_node(std::move(node));
  const auto response = transport_->call<v1::CreateOsdResponse>(&v1::Mon::Stub::CreateOsd, request);
  if (!response) return fail(response.error());
  const auto cluster = cluster_from(response->cluster());
  if (!cluster) return fail(cluster.error());
  return OsdCreated{.osd = OsdId(response->osd()), .cluster = *cluster};
}

Result<void> MonClient::forget_osd(OsdId osd, Uuid device) {
  v1::ForgetOsdRequest request;
  request.set_osd(osd.value);
  request.set_device(bytes_of(device));
  SARSEN_TRY(transport_->call<v1::ForgetOsdResponse>(&v1::Mon::Stub::ForgetOsd, request));
  return {};
}

Result<OsdBooted> MonClient::boot_osd(OsdBoot boot) {
  v1::BootOsdRequest request;
  to_proto(boot, request);
  const auto response = transport_->call<v1::BootOsdResponse>(&v1::Mon::Stub::BootOsd, request);
  if (!response) return fail(response.error());
  return OsdBooted{.incarnation = response->incarnation(),
                   .epoch = MapEpoch(response->map_epoch())};
}

Result<MapEpoch> MonClient::report_osd(OsdReport report) {
  v1::ReportOsdRequest request;
  to_proto(report, request);
  const auto response = transport_->call<v1::ReportOsdResponse>(&v1::Mon::Stub::ReportOsd, request);
  if (!response) return fail(response.error());
  return MapEpoch(response->map_epoch());
}

Result<ClusterStatus> MonClient::status() {
  const auto response =
      transport_->call<v1::GetStatusResponse>(&v1::Mon::Stub::GetStatus, v1::GetStatusRequest());
  if (!response) return fail(response.error());
  return from_proto(*response);
}

}  // namespace sarsen
