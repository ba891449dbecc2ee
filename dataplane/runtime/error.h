// Error codes of the runtime: what Disk, Network, Clock and start-up can answer.
#pragma once

#include <string>

#include "dataplane/base/result.h"

namespace sarsen {

enum class RuntimeError {
  io_error = 1,
  device_gone,
  no_space,
  read_only,
  bad_argument,
  cancelled,
  timed_out,
  stopped,
  overloaded,
  out_of_memory,
  connection_refused,
  connection_reset,
  address_in_use,
  address_invalid,
  not_found,
  permission_denied,
  io_uring_blocked,
  kernel_too_old,
  memlock_too_low,
  system,
};

const ErrorCategory& runtime_errors();

inline Error make_error(RuntimeError code) {
  return {runtime_errors(), static_cast<int>(code)};
}
inline Error make_error(RuntimeError code, std::string detail) {
  return {runtime_errors(), static_cast<int>(code), std::move(detail)};
}
inline bool is(const Error& error, RuntimeError code) {
  return &error.category() == &runtime_errors() && error.code() == static_cast<int>(code);
}

// The code that stands for an errno value; `doing` names the thing ("write /dev/sdb at 4096").
Error error_from_errno(int errno_value, std::string doing);

}  // namespace sarsen
