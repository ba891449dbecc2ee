// ControlServer: blockd's local service (blockd.proto) over gRPC on a unix socket.
//
// Trust      The socket has mode 0600: only root and the user of this process can connect.
// Lifecycle  start() before anybody is told to connect; stop() from a thread that is not the
//            shard's: refuses new calls, and waits for those in progress, which need the shard.
// Threads    gRPC's own, at most kThreadsMax; each call waits in one of them.
#pragma once

#include <memory>
#include <string>

#include "dataplane/blockd/control/shard_calls.h"
#include "dataplane/blockd/images.h"

namespace sarsen::blockd {

class ControlServer {
 public:
  static constexpr int kThreadsMax = 64;

  // A socket file that is there is replaced: the ServerLock is held. Error: system.
  static Result<std::unique_ptr<ControlServer>> start(const std::string& socket, Images& images,
                                                      ShardCalls& calls);
  ~ControlServer();
  void stop();

 private:
  struct State;
  explicit ControlServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace sarsen::blockd
