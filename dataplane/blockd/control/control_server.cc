#include "dataplane/blockd/control/control_server.h"

#include <chrono>
#include <utility>
#include <vector>

#include <grpcpp/grpcpp.h>
#include <sys/stat.h>

#include "dataplane/blockd/control/blockd.grpc.pb.h"
#include "dataplane/membership/mon_error.h"
#include "dataplane/runtime/error.h"

namespace sarsen::blockd {
namespace {

using grpc::ServerContext;
using grpc::Status;
using grpc::StatusCode;

// The message is a sentence for people; programs look at the code.
StatusCode code_of(const Error& error) {
  if (is(error, BlockdError::not_mapped) || is(error, MonError::not_found)) {
    return StatusCode::NOT_FOUND;
  }
  if (is(error, BlockdError::in_use) || is(error, BlockdError::mapped_otherwise) ||
      is(error, BlockdError::failed) || is(error, MonError::in_use)) {
    return StatusCode::FAILED_PRECONDITION;
  }
  switch (error.error_class()) {
    case ErrorClass::invalid: return StatusCode::INVALID_ARGUMENT;
    case ErrorClass::unavailable:
    case ErrorClass::cancelled: return StatusCode::UNAVAILABLE;
    case ErrorClass::corrupt:
    case ErrorClass::failed: return StatusCode::INTERNAL;
  }
  return StatusCode::INTERNAL;
}

Status status_of(const Error& error) {
  return {code_of(error), error.message()};
}

void to_proto(const ImageReport& report, v1::Device& device) {
  const ImageState& state = report.state;
  device.set_image(state.name);
  device.set_frontend(state.frontend == Frontend::nbd ? v1::FRONTEND_NBD : v1::FRONTEND_LOOP);
  device.set_device(report.device);
  device.set_state(std::string(name_of(report.phase)));
  device.set_detail(report.detail);
  device.set_size_bytes(report.size_bytes);
  device.set_sector_bytes(state.sector_bytes);
  device.set_read_only(state.read_only());
  device.set_image_id(state.image.value);
  device.set_holder(state.holder.value);
  device.set_attach_epoch(state.attach_epoch.value);
  device.set_nbd_connections(report.nbd_connections);
  device.set_requests_waiting(report.stats.waiting);
  device.set_reads(report.stats.reads);
  device.set_writes(report.stats.writes);
  device.set_bytes_read(report.stats.bytes_read);
  device.set_bytes_written(report.stats.bytes_written);
  device.set_resent(report.stats.resent);
}

MapOptions options_of(const v1::MapRequest& request) {
  MapOptions options;
  options.image = request.image();
  options.frontend = request.frontend() == v1::FRONTEND_NBD ? Frontend::nbd : Frontend::loop;
  if (request.sector_bytes() != 0) options.sector_bytes = request.sector_bytes();
  if (request.read_only()) options.mode = AttachMode::read_only;
  return options;
}

class Service final : public v1::BlockDevices::Service {
 public:
  Service(Images& images, ShardCalls& calls) : images_(images), calls_(calls) {}

  Status Map(ServerContext*, const v1::MapRequest* request, v1::Device* device) override {
    const auto mapped = calls_.run<ImageReport>(
        [this, options = options_of(*request)] { return images_.map(options); });
    if (!mapped) return status_of(mapped.error());
    to_proto(*mapped, *device);
    return Status::OK;
  }
  Status Unmap(ServerContext*, const v1::UnmapRequest* request, v1::UnmapResponse*) override {
    return outcome(calls_.run<void>([this, image = request->image(), force = request->force()] {
      return images_.unmap(image, force);
    }));
  }
  Status Fail(ServerContext*, const v1::FailRequest* request, v1::FailResponse*) override {
    return outcome(
        calls_.run<void>([this, image = request->image()] { return images_.fail(image); }));
  }
  Status List(ServerContext*, const v1::ListRequest*, v1::ListResponse* response) override {
    const auto reports = calls_.run<std::vector<ImageReport>>([this] { return report(&images_); });
    if (!reports) return status_of(reports.error());
    for (const ImageReport& each : *reports) to_proto(each, *response->add_devices());
    return Status::OK;
  }

 private:
  static Task<Result<std::vector<ImageReport>>> report(Images* images) {
    co_return images->report();
  }
  static Status outcome(const Result<void>& result) {
    return result ? Status::OK : status_of(result.error());
  }
  Images& images_;
  ShardCalls& calls_;
};

}  // namespace

struct ControlServer::State {
  State(Images& images, ShardCalls& calls) : service(images, calls) {}
  Service service;
  std::unique_ptr<grpc::Server> server;
};

ControlServer::ControlServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<ControlServer>> ControlServer::start(const std::string& socket,
                                                            Images& images, ShardCalls& calls) {
  auto state = std::make_unique<State>(images, calls);
  grpc::ResourceQuota quota("blockd control");
  quota.SetMaxThreads(kThreadsMax);
  grpc::ServerBuilder builder;
  builder.SetResourceQuota(quota);
  builder.AddListeningPort("unix:" + socket, grpc::InsecureServerCredentials());
  builder.RegisterService(&state->service);
  const mode_t old_mask = ::umask(0177);
  state->server = builder.BuildAndStart();
  ::umask(old_mask);
  if (!state->server) {
    return fail(make_error(RuntimeError::system, "cannot listen on unix:" + socket));
  }
  return std::unique_ptr<ControlServer>(new ControlServer(std::move(state)));
}

void ControlServer::stop() {
  // Calls in progress are not cut off: the shard answers them, or refuses them as it ends.
  state_->server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(60));
}

ControlServer::~ControlServer() = default;

}  // namespace sarsen::blockd
