// The Listener of UringNetwork.
#pragma once

#include <memory>
#include <string>

#include <sys/types.h>

#include "dataplane/runtime/uring/ring_operation.h"
#include "dataplane/runtime/uring/socket_address.h"

namespace sarsen {

class UringListener final : public Listener {
 public:
  // Errors: address_in_use, address_invalid, permission_denied.
  static Result<std::unique_ptr<Listener>> open(Reactor& reactor, const SocketAddress& address,
                                                int backlog);
  ~UringListener() override;

  Task<Result<std::unique_ptr<Connection>>> accept() override;
  void close() override;
  Address address() const override { return address_; }

 private:
  // Which file a unix listener made, to remove that one and no other.
  struct SocketFile {
    std::string path;
    dev_t device = 0;
    ino_t inode = 0;
  };
  UringListener(Reactor& reactor, int descriptor, Address address, SocketFile file);
  static SocketFile identify(const SocketAddress& address);
  void remove_socket_file();

  Reactor& reactor_;
  RingFile file_;
  Address address_;
  SocketFile socket_file_;
  bool accepting_ = false;
  bool closed_ = false;
};

// Options of every stream connection; best effort, a unix socket has none.
void set_connection_options(int descriptor, const SocketAddress& peer);

}  // namespace sarsen
