// Serves an RpcService on any number of addresses.
//
// Lifecycle  listen() for each address; `co_await stop()` before destruction: no new connections or
//            requests, those under way end and are answered, then connections are closed; after
//            drain_max they are closed anyway. It waits for the service's own operations to end.
// Shard      One.
// Bounded    connections_max connections (more are closed at once), data_bytes_max bytes of
// requests
//            and replies over all of them, and what the identity announces to each.
// Errors     listen(): those of Network. Connections that end with an error are counted.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dataplane/base/intrusive_list.h"
#include "dataplane/base/result.h"
#include "dataplane/runtime/cancel.h"
#include "dataplane/runtime/env.h"
#include "dataplane/runtime/scope.h"
#include "dataplane/runtime/semaphore.h"
#include "dataplane/runtime/task.h"
#include "dataplane/wire/rpc_session.h"

namespace sarsen::wire {

struct RpcServerLimits {
  std::uint32_t connections_max = 1024;
  // At least kDataBytesMax; less than what the shard's BufferPool can give.
  std::uint64_t data_bytes_max = 128 * kMiB;
  Duration hello_max = seconds(10);
  Duration drain_max = seconds(10);
  FrameStreamLimits stream;
};

struct RpcServerStats {
  std::uint32_t connections = 0;  // now
  std::uint64_t connections_accepted = 0;
  std::uint64_t connections_refused = 0;  // more than connections_max
  std::uint64_t connections_failed = 0;   // ended with an error
  std::string last_failure;               // why the latest of them failed; for people
};

class RpcServer {
 public:
  RpcServer(const Env& env, RpcService& service, ServerIdentity identity,
            RpcServerLimits limits = {});

  // Gives the address with the port that the system chose.
  Result<Address> listen(Address address);
  Task<void> stop();
  const RpcServerStats& stats() const { return stats_; }

 private:
  Task<void> accept_connections(Listener* listener);
  Task<void> serve(std::unique_ptr<Connection> connection);
  template <typename Visit>
  void for_each_session(Visit visit);

  const Env& env_;
  RpcService& service_;
  const ServerIdentity identity_;
  const RpcServerLimits limits_;
  Semaphore data_bytes_;
  RpcServerStats stats_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  IntrusiveList<RpcSession> sessions_;
  CancelSource stopping_;
  Scope accepting_;
  Scope connections_;
};

}  // namespace sarsen::wire
