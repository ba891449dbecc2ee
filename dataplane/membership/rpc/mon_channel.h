// What the two sides of the mon's gRPC share: addresses, channels, errors. Heavy to include: only
// for .cc files.
#pragma once

#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>

#include "dataplane/base/result.h"
#include "dataplane/membership/mon_error.h"
#include "dataplane/runtime/env.h"

namespace sarsen {

// "unix:PATH" or "tcp:HOST:PORT" as gRPC takes it, for listening and for connecting. Error:
// bad_request, saying what would be accepted.
Result<std::string> grpc_target(const Address& address);

// Without TLS. Notices within 15 s that the other side is gone silently; never uses a proxy.
std::shared_ptr<grpc::Channel> make_channel(const std::string& target);
// The same bounds on the server's side.
void set_server_limits(grpc::ServerBuilder& builder);

// Any Error as a status, and back. An error that is no MonError travels as its sentence.
grpc::Status to_status(const Error& error);
Error error_from(const grpc::Status& status);

}  // namespace sarsen
