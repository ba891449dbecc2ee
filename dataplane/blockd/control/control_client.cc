#include "dataplane/blockd/control/control_client.h"

#include <chrono>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "dataplane/blockd/control/blockd.grpc.pb.h"

namespace sarsen::blockd {
namespace {

class ControlErrors final : public ErrorCategory {
 public:
  std::string_view name() const override { return "blockd"; }
  std::string_view sentence(int code) const override {
    switch (static_cast<ControlError>(code)) {
      case ControlError::unreachable: return "no sarsen-blockd answers";
      case ControlError::timed_out: return "blockd did not answer in time";
      case ControlError::not_found: return "there is no such image here";
      case ControlError::refused: return "refused";
      case ControlError::not_now: return "not possible now";
      case ControlError::failed: return "it could not be done";
    }
    return "unknown control error";
  }
  ErrorClass error_class(int code) const override {
    switch (static_cast<ControlError>(code)) {
      case ControlError::unreachable:
      case ControlError::timed_out:
      case ControlError::not_now: return ErrorClass::unavailable;
      case ControlError::not_found:
      case ControlError::refused: return ErrorClass::invalid;
      case ControlError::failed: return ErrorClass::failed;
    }
    return ErrorClass::failed;
  }
};

ControlError code_of(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::NOT_FOUND: return ControlError::not_found;
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::FAILED_PRECONDITION: return ControlError::refused;
    case grpc::StatusCode::DEADLINE_EXCEEDED: return ControlError::timed_out;
    case grpc::StatusCode::UNAVAILABLE: return ControlError::not_now;
    default: return ControlError::failed;
  }
}

DeviceReport from_proto(const v1::Device& device) {
  DeviceReport report;
  report.image = device.image();
  report.nbd = device.frontend() == v1::FRONTEND_NBD;
  report.device = device.device();
  report.state = device.state();
  report.detail = device.detail();
  report.size_bytes = device.size_bytes();
  report.sector_bytes = device.sector_bytes();
  report.read_only = device.read_only();
  report.image_id = device.image_id();
  report.holder = device.holder();
  report.attach_epoch = device.attach_epoch();
  report.nbd_connections = device.nbd_connections();
  report.requests_waiting = device.requests_waiting();
  report.reads = device.reads();
  report.writes = device.writes();
  report.bytes_read = device.bytes_read();
  report.bytes_written = device.bytes_written();
  report.resent = device.resent();
  return report;
}

}  // namespace

const ErrorCategory& control_errors() {
  static const ControlErrors category;
  return category;
}

bool is(const Error& error, ControlError code) {
  return &error.category() == &control_errors() && error.code() == static_cast<int>(code);
}

struct ControlClient::Transport {
  std::string address;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::BlockDevices::Stub> stub;

  Error error(const grpc::Status& status) const {
    ControlError code = code_of(status);
    // gRPC's own sentence about a socket nobody listens on names neither socket nor program.
    const bool connected = channel->GetState(false) == GRPC_CHANNEL_READY;
    if (code == ControlError::not_now && !connected) {
      return {control_errors(), static_cast<int>(ControlError::unreachable), address};
    }
    return {control_errors(), static_cast<int>(code), status.error_message()};
  }
};

namespace {

void set_deadline(grpc::ClientContext& context, int seconds) {
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(seconds));
}

}  // namespace

ControlClient::ControlClient(const std::string& socket)
    : transport_(std::make_unique<Transport>()) {
  transport_->address = "unix:" + socket;
  transport_->channel =
      grpc::CreateChannel(transport_->address, grpc::InsecureChannelCredentials());
  transport_->stub = v1::BlockDevices::NewStub(transport_->channel);
}

ControlClient::~ControlClient() = default;

Result<DeviceReport> ControlClient::map(const DeviceRequest& request) {
  v1::MapRequest message;
  message.set_image(request.image);
  message.set_frontend(request.nbd ? v1::FRONTEND_NBD : v1::FRONTEND_LOOP);
  message.set_sector_bytes(request.sector_bytes);
  message.set_read_only(request.read_only);
  v1::Device device;
  grpc::ClientContext context;
  set_deadline(context, kCallMaxSeconds);
  const grpc::Status status = transport_->stub->Map(&context, message, &device);
  if (!status.ok()) return sarsen::fail(transport_->error(status));
  return from_proto(device);
}

Result<void> ControlClient::unmap(const std::string& image, bool force) {
  v1::UnmapRequest message;
  message.set_image(image);
  message.set_force(force);
  v1::UnmapResponse response;
  grpc::ClientContext context;
  set_deadline(context, kCallMaxSeconds);
  const grpc::Status status = transport_->stub->Unmap(&context, message, &response);
  if (!status.ok()) return sarsen::fail(transport_->error(status));
  return {};
}

Result<void> ControlClient::fail(const std::string& image, int seconds_max) {
  v1::FailRequest message;
  message.set_image(image);
  v1::FailResponse response;
  grpc::ClientContext context;
  set_deadline(context, seconds_max);
  const grpc::Status status = transport_->stub->Fail(&context, message, &response);
  if (!status.ok()) return sarsen::fail(transport_->error(status));
  return {};
}

Result<std::vector<DeviceReport>> ControlClient::list() {
  v1::ListResponse response;
  grpc::ClientContext context;
  set_deadline(context, kCallMaxSeconds);
  const grpc::Status status = transport_->stub->List(&context, v1::ListRequest(), &response);
  if (!status.ok()) return sarsen::fail(transport_->error(status));
  std::vector<DeviceReport> reports;
  for (const v1::Device& device : response.devices()) reports.push_back(from_proto(device));
  return reports;
}

}  // namespace sarsen::blockd
