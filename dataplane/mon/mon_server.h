// MonServer: a Mon behind listening sockets.
//
// Lifecycle  start() listens and serves; stop() ends the calls under way and joins; the destructor
//            does it too. Borrows the Mon.
// Errors     bad_request (address), in_use (somebody listens there already).
#pragma once

#include <memory>
#include <vector>

#include "dataplane/mon/mon.h"
#include "dataplane/runtime/env.h"

namespace sarsen {

class MonServer {
 public:
  static Result<std::unique_ptr<MonServer>> start(Mon& mon, std::vector<Address> addresses);
  ~MonServer();

  // With the ports that the system chose.
  const std::vector<Address>& addresses() const { return addresses_; }
  void stop();

 private:
  struct Server;
  MonServer(std::unique_ptr<Server> server, std::vector<Address> addresses);
  std::unique_ptr<Server> server_;
  std::vector<Address> addresses_;
};

}  // namespace sarsen
