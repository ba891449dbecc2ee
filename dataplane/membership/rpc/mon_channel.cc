#include "dataplane/membership/rpc/mon_channel.h"

#include <charconv>

#include "dataplane/membership/rpc/map_codec.h"

namespace sarsen {
namespace {

constexpr std::string_view kUnix = "unix:";
constexpr std::string_view kTcp = "tcp:";
constexpr std::size_t kSocketPathBytesMax = 107;

constexpr int kKeepaliveMs = 10'000;
constexpr int kKeepaliveTimeoutMs = 5'000;
constexpr int kReconnectMinMs = 100;
constexpr int kReconnectMaxMs = 1'000;

bool is_port(std::string_view text) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc{} && end == text.data() + text.size();
}

grpc::StatusCode status_code(MonError code) {
  switch (code) {
    case MonError::not_found: return grpc::StatusCode::NOT_FOUND;
    case MonError::exists: return grpc::StatusCode::ALREADY_EXISTS;
    case MonError::in_use:
    case MonError::gone:
    case MonError::boot_refused: return grpc::StatusCode::FAILED_PRECONDITION;
    case MonError::bad_request:
    case MonError::wrong_cluster: return grpc::StatusCode::INVALID_ARGUMENT;
    case MonError::busy: return grpc::StatusCode::ABORTED;
    case MonError::store_failed: return grpc::StatusCode::INTERNAL;
    case MonError::timed_out: return grpc::StatusCode::DEADLINE_EXCEEDED;
    case MonError::garbled: return grpc::StatusCode::DATA_LOSS;
    case MonError::unreachable:
    case MonError::stopped: return grpc::StatusCode::UNAVAILABLE;
  }
  return grpc::StatusCode::UNKNOWN;
}

}  // namespace

Result<std::string> grpc_target(const Address& address) {
  if (address.starts_with(kUnix)) {
    const std::string path = address.substr(kUnix.size());
    if (path.starts_with('/') && path.size() <= kSocketPathBytesMax) return address;
  }
  if (address.starts_with(kTcp)) {
    const std::string rest = address.substr(kTcp.size());
    const auto colon = rest.rfind(':');
    if (colon != std::string::npos && colon > 0 &&
        is_port(std::string_view(rest).substr(colon + 1))) {
      return rest;
    }
  }
  return fail(make_error(
      MonError::bad_request,
      "address '" + address +
          "': expected unix:PATH with an absolute path of at most 107 bytes, or tcp:HOST:PORT"));
}

std::shared_ptr<grpc::Channel> make_channel(const std::string& target) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectMinMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kReconnectMaxMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMaxMs);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(static_cast<int>(kUpdateBytesMax));
  return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
}

void set_server_limits(grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kKeepaliveTimeoutMs);
  builder.SetMaxReceiveMessageSize(1 << 20);
}

grpc::Status to_status(const Error& error) {
  if (&error.category() != &mon_errors()) {
    return {grpc::StatusCode::INTERNAL, error.message(),
            std::to_string(static_cast<int>(MonError::store_failed))};
  }
  return {status_code(static_cast<MonError>(error.code())), std::string(error.detail()),
          std::to_string(error.code())};
}

Error error_from(const grpc::Status& status) {
  const std::string details = status.error_details();
  int code = 0;
  const auto [end, error] = std::from_chars(details.data(), details.data() + details.size(), code);
  if (error == std::errc{} && code >= 1 && code <= kMonErrorMax) {
    return make_error(static_cast<MonError>(code), status.error_message());
  }
  switch (status.error_code()) {
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return make_error(MonError::timed_out, status.error_message());
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::CANCELLED:
      return make_error(MonError::unreachable, status.error_message());
    default: return make_error(MonError::garbled, status.error_message());
  }
}

}  // namespace sarsen
