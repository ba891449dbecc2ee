// Why an NBD connection was ended by the server. Clients see a closed connection; logs see this.
#pragma once

#include <string>

#include "dataplane/base/result.h"
#include "dataplane/blockd/nbd/nbd_protocol.h"

namespace sarsen::nbd {

enum class NbdError {
  bad_magic = 1,
  bad_client_flags,
  option_not_allowed,
  option_too_big,
  unknown_export,
  too_many_options,
  too_slow,
};

const ErrorCategory& nbd_errors();

inline Error make_error(NbdError code, std::string detail) {
  return {nbd_errors(), static_cast<int>(code), std::move(detail)};
}

// What a client is told when a target answered `error`. Targets use the runtime's codes where one
// fits (no_space, read_only, bad_argument, stopped); any other is told by its class.
Errno errno_of(const Error& error);

}  // namespace sarsen::nbd
