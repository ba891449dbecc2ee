// The Connection of UringNetwork.
#pragma once

#include <span>
#include <vector>

#include <sys/uio.h>

#include "dataplane/runtime/uring/ring_operation.h"

namespace sarsen {

class UringConnection final : public Connection {
 public:
  // Takes over `descriptor`, a connected stream socket.
  UringConnection(Reactor& reactor, int descriptor, Address peer);
  ~UringConnection() override;

  Task<Result<std::size_t>> receive(std::span<std::byte> into) override;
  Task<Result<void>> send(std::span<const std::span<const std::byte>> pieces) override;
  void close() override;
  Address peer() const override { return peer_; }

 private:
  Task<Result<void>> send_one(std::span<const std::byte> piece);
  Task<Result<void>> send_gathered(std::span<const std::span<const std::byte>> pieces);
  Unexpected failure(const char* verb, int errno_value) const;
  Unexpected reset() const;

  Reactor& reactor_;
  RingFile file_;
  Address peer_;
  std::vector<iovec> vectors_;  // of the send in flight
  bool closed_ = false;
  bool receiving_ = false;
  bool sending_ = false;
  bool drained_ = true;  // the last receive left nothing behind: wait for the next bytes at once
};

}  // namespace sarsen
