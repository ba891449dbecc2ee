// UringNetwork: Network over TCP and unix sockets on one shard's io_uring.
//
// TCP        TCP_NODELAY; keepalive that finds a dead peer in about 20 s; SO_REUSEADDR to listen.
// Unix       A stale socket file is replaced only when nobody answers on it; the file is removed
// when
//            the listener closes, if it still is the listener's. A start is guarded by a lock on
//            the directory, so that two starters cannot both find a socket stale.
// Bounds     A connect ends after NetworkOptions::connect_timeout. Receives and sends last until
// the
//            peer or close() ends them: deadlines belong to the protocol above.
// Lifecycle  Listeners and connections die on their shard, after the calls on them returned
// (assert);
//            close() makes them return.
#pragma once

#include <memory>

#include "dataplane/runtime/uring/reactor.h"

namespace sarsen {

struct NetworkOptions {
  Duration connect_timeout = seconds(5);
  int listen_backlog = 256;
};

class UringNetwork final : public Network {
 public:
  explicit UringNetwork(Reactor& reactor, NetworkOptions options = {})
      : reactor_(reactor), options_(options) {}

  // Errors: address_invalid, address_in_use, permission_denied.
  Result<std::unique_ptr<Listener>> listen(Address address) override;
  // Errors: address_invalid, connection_refused, not_found (no such unix socket), timed_out.
  Task<Result<std::unique_ptr<Connection>>> connect(Address address) override;

 private:
  Reactor& reactor_;
  NetworkOptions options_;
};

// A Connection on a stream socket that is connected already (socketpair, a descriptor that was
// handed over). Takes over `descriptor`.
std::unique_ptr<Connection> adopt_connection(Reactor& reactor, int descriptor);

}  // namespace sarsen
