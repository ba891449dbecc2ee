// The sockets that a mon listens on, before gRPC gets them.
#pragma once

#include <string>
#include <vector>

#include "dataplane/base/result.h"
#include "dataplane/runtime/env.h"

namespace sarsen {

// Makes the folder of a unix socket (0700), and sees that nobody listens there: gRPC would take the
// place of whoever does. Nothing to do for tcp. Error: bad_request, in_use.
Result<void> prepare_listening(const Address& address);
// Only the owner may connect.
Result<void> restrict_socket(const Address& address);

}  // namespace sarsen
