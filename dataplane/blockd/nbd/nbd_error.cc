#include "dataplane/blockd/nbd/nbd_error.h"

#include "dataplane/client/error.h"
#include "dataplane/runtime/error.h"
#include "dataplane/wire/error.h"

namespace sarsen::nbd {
namespace {

class NbdErrors final : public ErrorCategory {
 public:
  std::string_view name() const override { return "nbd"; }
  std::string_view sentence(int code) const override {
    switch (static_cast<NbdError>(code)) {
      case NbdError::bad_magic: return "the client does not speak this protocol";
      case NbdError::bad_client_flags: return "the client sent handshake flags that do not exist";
      case NbdError::option_not_allowed: return "the client may not send this option now";
      case NbdError::option_too_big: return "the client sent an option that is too long";
      case NbdError::unknown_export: return "there is no such export";
      case NbdError::too_many_options: return "the client sent too many options";
      case NbdError::too_slow: return "the client sends or takes data too slowly";
    }
    return "unknown NBD error";
  }
  ErrorClass error_class(int) const override { return ErrorClass::invalid; }
};

}  // namespace

const ErrorCategory& nbd_errors() {
  static const NbdErrors category;
  return category;
}

Errno errno_of(const Error& error) {
  if (is(error, RuntimeError::no_space)) return Errno::no_space;
  if (is(error, wire::RemoteError::no_space)) return Errno::no_space;
  if (is(error, RuntimeError::read_only)) return Errno::not_permitted;
  if (is(error, ClientError::read_only)) return Errno::not_permitted;
  if (is(error, RuntimeError::permission_denied)) return Errno::not_permitted;
  if (is(error, RuntimeError::out_of_memory)) return Errno::no_memory;
  switch (error.error_class()) {
    case ErrorClass::invalid: return Errno::invalid;
    case ErrorClass::cancelled: return Errno::shutdown;
    case ErrorClass::unavailable:
    case ErrorClass::corrupt:
    case ErrorClass::failed: return Errno::io;
  }
  return Errno::io;
}

}  // namespace sarsen::nbd
