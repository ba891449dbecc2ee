// Serves exports over NBD on any number of unix and TCP addresses.
//
// Lifecycle  listen() for each address; `co_await stop()` before destruction: no new connections,
// no
//            new requests, those in flight end and are answered, then connections are closed; after
//            drain_max they are closed anyway. It waits for the targets' own operations to end.
// Shard      One; the targets that Exports opens belong to it.
// Bounded    connections_max connections (more are closed at once), bytes_in_flight_max bytes of
//            requests and replies over all of them, and each session's own limits.
// Errors     listen(): those of Network. Connections that end with an error are counted.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dataplane/base/intrusive_list.h"
#include "dataplane/base/result.h"
#include "dataplane/blockd/nbd/nbd_export.h"
#include "dataplane/blockd/nbd/nbd_session.h"
#include "dataplane/runtime/cancel.h"
#include "dataplane/runtime/env.h"
#include "dataplane/runtime/scope.h"
#include "dataplane/runtime/semaphore.h"
#include "dataplane/runtime/task.h"

namespace sarsen::nbd {

struct ServerLimits {
  std::uint32_t connections_max = 64;
  // At least kBudgetBytesMin, and less than what the shard's BufferPool can give.
  std::uint64_t bytes_in_flight_max = 80 * kMiB;
  Duration drain_max = seconds(10);
  // How often deadlines of connections are looked at.
  Duration check_interval = seconds(5);
  SessionLimits session;
};

struct ServerStats {
  std::uint32_t connections = 0;  // now
  std::uint64_t connections_accepted = 0;
  std::uint64_t connections_refused = 0;  // more than connections_max
  std::uint64_t connections_failed = 0;   // ended with an error
  std::uint64_t replies_done = 0;         // of connections that ended
  std::string last_failure;               // why the latest of them failed; for people
};

class Server {
 public:
  Server(const Env& env, Exports& exports, ServerLimits limits = {});

  // Gives the address with the port that the system chose.
  Result<Address> listen(Address address);
  Task<void> stop();
  const ServerStats& stats() const { return stats_; }

 private:
  Task<void> accept_connections(Listener* listener);
  Task<void> serve(std::unique_ptr<Connection> connection);
  Task<void> watch();
  template <typename Visit>
  void for_each_session(Visit visit);
  // False when the server stops.
  Task<bool> pause(Duration duration);

  const Env& env_;
  Exports& exports_;
  const ServerLimits limits_;
  Semaphore bytes_;
  ServerStats stats_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  IntrusiveList<Session> sessions_;
  CancelSource stopping_;
  bool watching_ = false;
  Scope background_;  // accept loops and the watch
  Scope connections_;
};

}  // namespace sarsen::nbd
