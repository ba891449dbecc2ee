#include "dataplane/runtime/error.h"

#include <cerrno>
#include <cstring>

namespace sarsen {
namespace {

class RuntimeErrors final : public ErrorCategory {
 public:
  std::string_view name() const override { return "runtime"; }

  std::string_view sentence(int code) const override {
    switch (static_cast<RuntimeError>(code)) {
      case RuntimeError::io_error: return "the device reported an I/O error";
      case RuntimeError::device_gone: return "the device is gone";
      case RuntimeError::no_space: return "there is no space left";
      case RuntimeError::read_only: return "the device is read-only";
      case RuntimeError::bad_argument: return "an argument is not acceptable";
      case RuntimeError::cancelled: return "the operation was cancelled";
      case RuntimeError::timed_out: return "the operation did not end before its deadline";
      case RuntimeError::stopped: return "the service is stopping";
      case RuntimeError::overloaded: return "a bounded queue is full";
      case RuntimeError::out_of_memory: return "memory could not be allocated";
      case RuntimeError::connection_refused: return "nobody listens at the address";
      case RuntimeError::connection_reset: return "the peer closed the connection";
      case RuntimeError::address_in_use: return "the address is in use";
      case RuntimeError::address_invalid: return "the address is not valid";
      case RuntimeError::not_found: return "it does not exist";
      case RuntimeError::permission_denied: return "permission was denied";
      case RuntimeError::io_uring_blocked: return "io_uring is not allowed here";
      case RuntimeError::kernel_too_old: return "the kernel is too old";
      case RuntimeError::memlock_too_low: return "the limit of locked memory is too low";
      case RuntimeError::system: return "a system call failed";
    }
    return "unknown runtime error";
  }

  ErrorClass error_class(int code) const override {
    switch (static_cast<RuntimeError>(code)) {
      case RuntimeError::bad_argument:
      case RuntimeError::address_invalid:
      case RuntimeError::permission_denied:
      case RuntimeError::not_found:
      case RuntimeError::io_uring_blocked:
      case RuntimeError::kernel_too_old:
      case RuntimeError::memlock_too_low: return ErrorClass::invalid;
      case RuntimeError::cancelled:
      case RuntimeError::stopped: return ErrorClass::cancelled;
      case RuntimeError::io_error:
      case RuntimeError::device_gone:
      case RuntimeError::read_only:
      case RuntimeError::system: return ErrorClass::failed;
      case RuntimeError::no_space:
      case RuntimeError::timed_out:
      case RuntimeError::overloaded:
      case RuntimeError::out_of_memory:
      case RuntimeError::connection_refused:
      case RuntimeError::connection_reset:
      case RuntimeError::address_in_use: return ErrorClass::unavailable;
    }
    return ErrorClass::failed;
  }
};

RuntimeError code_from_errno(int value) {
  switch (value) {
    // The block layer's medium, target, link and protection errors among them.
    case EIO:
    case ENODATA:
    case EREMOTEIO:
    case ENOLINK:
    case EILSEQ: return RuntimeError::io_error;
    case ENODEV:
    case ENXIO: return RuntimeError::device_gone;
    case ENOSPC:
    case EDQUOT: return RuntimeError::no_space;
    case EROFS: return RuntimeError::read_only;
    case EINVAL: return RuntimeError::bad_argument;
    case ECANCELED: return RuntimeError::cancelled;
    case ETIMEDOUT:
    case ETIME: return RuntimeError::timed_out;
    case EAGAIN:
    case EMFILE:
    case ENFILE:
    case EBUSY: return RuntimeError::overloaded;
    case ENOBUFS:
    case ENOMEM: return RuntimeError::out_of_memory;
    // Whether the host or only the process is away, the answer is to try again.
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENETDOWN:
    case ENETUNREACH:
    case ECONNREFUSED: return RuntimeError::connection_refused;
    case ECONNABORTED:
    case ECONNRESET:
    case EPIPE:
    case ENOTCONN: return RuntimeError::connection_reset;
    case EADDRINUSE: return RuntimeError::address_in_use;
    case EADDRNOTAVAIL:
    case EAFNOSUPPORT: return RuntimeError::address_invalid;
    case ENOENT: return RuntimeError::not_found;
    case EPERM:
    case EACCES: return RuntimeError::permission_denied;
    default: return RuntimeError::system;
  }
}

}  // namespace

const ErrorCategory& runtime_errors() {
  static const RuntimeErrors category;
  return category;
}

Error error_from_errno(int errno_value, std::string doing) {
  doing += ": ";
  doing += std::strerror(errno_value);
  return make_error(code_from_errno(errno_value), std::move(doing));
}

}  // namespace sarsen
