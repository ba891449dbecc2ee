#include "dataplane/wire/error.h"

#include <string_view>
#include <utility>

#include "dataplane/runtime/error.h"
#include "dataplane/wire/message.h"

namespace sarsen::wire {
namespace {

class WireErrors final : public ErrorCategory {
 public:
  std::string_view name() const override { return "wire"; }
  std::string_view sentence(int code) const override {
    switch (static_cast<WireError>(code)) {
      case WireError::bad_magic: return "the peer does not speak this protocol";
      case WireError::bad_version: return "the frame is of a version that was not agreed on";
      case WireError::bad_header_checksum: return "a frame's header does not match its checksum";
      case WireError::bad_body_checksum: return "a frame's body does not match its checksum";
      case WireError::too_long: return "a frame is longer than any may be";
      case WireError::malformed: return "a frame holds what the protocol does not allow";
      case WireError::unexpected_frame: return "a frame came that answers nothing";
    }
    return "unknown wire error";
  }
  // The operations that were under way can be sent again on a new connection.
  ErrorClass error_class(int code) const override {
    return code == static_cast<int>(WireError::bad_magic) ||
                   code == static_cast<int>(WireError::bad_version)
               ? ErrorClass::invalid
               : ErrorClass::unavailable;
  }
};

// An unknown code travels as the class it came with, above the 16 bits of the code.
constexpr int kClassShift = 16;

class RemoteErrors final : public ErrorCategory {
 public:
  std::string_view name() const override { return "remote"; }
  std::string_view sentence(int code) const override {
    switch (static_cast<RemoteError>(code & 0xffff)) {
      case RemoteError::bad_request: return "the request is not acceptable";
      case RemoteError::unsupported: return "the peer does not know this message";
      case RemoteError::version_not_supported: return "no common version or feature set";
      case RemoteError::wrong_cluster: return "the peer belongs to another cluster";
      case RemoteError::fenced: return "the image is not attached here any more";
      case RemoteError::stale_session: return "a newer session has taken over";
      case RemoteError::stale_operation: return "the operation was acknowledged before";
      case RemoteError::not_found: return "it does not exist";
      case RemoteError::read_only: return "it does not take changes";
      case RemoteError::stale_epoch: return "the placement group has another configuration";
      case RemoteError::not_primary: return "another OSD leads the placement group";
      case RemoteError::inactive: return "the placement group serves nobody now";
      case RemoteError::overloaded: return "too much is in flight";
      case RemoteError::no_space: return "there is no space left";
      case RemoteError::timed_out: return "the deadline passed";
      case RemoteError::stopped: return "the peer is stopping";
      case RemoteError::bad_checksum: return "the data did not arrive as it was sent";
      case RemoteError::corrupt: return "stored data fails its checksum";
      case RemoteError::io_error: return "a device failed";
    }
    return "the peer answered an error that this version does not know";
  }
  ErrorClass error_class(int code) const override {
    if (code >> kClassShift != 0) return ErrorClass((code >> kClassShift) - 1);
    if (code < static_cast<int>(RemoteError::stale_epoch)) return ErrorClass::invalid;
    if (code < static_cast<int>(RemoteError::corrupt)) return ErrorClass::unavailable;
    return code == static_cast<int>(RemoteError::corrupt) ? ErrorClass::corrupt
                                                          : ErrorClass::failed;
  }
};

bool known(std::uint16_t code) {
  return (code >= 1 && code <= 9) || (code >= 16 && code <= 23) || code == 32 || code == 33;
}

constexpr std::pair<RuntimeError, RemoteError> kSameWord[] = {
    {RuntimeError::no_space, RemoteError::no_space},
    {RuntimeError::read_only, RemoteError::read_only},
    {RuntimeError::overloaded, RemoteError::overloaded},
    {RuntimeError::timed_out, RemoteError::timed_out},
    {RuntimeError::not_found, RemoteError::not_found},
    {RuntimeError::io_error, RemoteError::io_error},
    {RuntimeError::bad_argument, RemoteError::bad_request},
};

RemoteError code_of(const Error& error) {
  if (&error.category() == &remote_errors() && error.code() >> kClassShift == 0) {
    return RemoteError(error.code());
  }
  for (const auto& [local, remote] : kSameWord) {
    if (is(error, local)) return remote;
  }
  switch (error.error_class()) {
    case ErrorClass::invalid: return RemoteError::bad_request;
    case ErrorClass::unavailable: return RemoteError::overloaded;
    case ErrorClass::corrupt: return RemoteError::corrupt;
    case ErrorClass::failed: return RemoteError::io_error;
    case ErrorClass::cancelled: return RemoteError::stopped;
  }
  return RemoteError::io_error;
}

}  // namespace

const ErrorCategory& wire_errors() {
  static const WireErrors category;
  return category;
}

const ErrorCategory& remote_errors() {
  static const RemoteErrors category;
  return category;
}

ErrorReply to_reply(const Error& error, PgEpoch epoch) {
  const RemoteError code = code_of(error);
  ErrorReply reply;
  reply.code = static_cast<std::uint16_t>(code);
  reply.error_class = remote_errors().error_class(static_cast<int>(code));
  reply.epoch = epoch;
  // An error that came from a peer is passed on; one of ours is told with its own sentence.
  reply.detail =
      &error.category() == &remote_errors() ? std::string(error.detail()) : error.message();
  if (reply.detail.size() > kDetailBytesMax) reply.detail.resize(kDetailBytesMax);
  return reply;
}

Error from_reply(const ErrorReply& reply) {
  if (!known(reply.code)) {
    const int code = (static_cast<int>(reply.error_class) + 1) << kClassShift | reply.code;
    return {remote_errors(), code, reply.detail};
  }
  for (const auto& [local, remote] : kSameWord) {
    if (reply.code == static_cast<std::uint16_t>(remote)) {
      return sarsen::make_error(local, reply.detail);
    }
  }
  return make_error(RemoteError(reply.code), reply.detail);
}

}  // namespace sarsen::wire
