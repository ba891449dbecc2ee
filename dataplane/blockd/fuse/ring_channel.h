// A FUSE connection on the shard's io_uring.
//
// The ring waits (a poll costs no system call of its own); packets are then read and written
// directly. Reading through the ring would not be safe: /dev/fuse blocks inside a read when another
// reader was faster, and that would stop the shard; with O_NONBLOCK the ring does not wait at all.
// An own thread would cost two more wake-ups per request. Measured: README.md.
//
// Owns     The descriptor it is given.
// Lifetime The reactor outlives it. close() and, when a wait is pending, its end come before the
//          destructor.
#pragma once

#include "dataplane/blockd/fuse/fuse_channel.h"
#include "dataplane/keeper/descriptor.h"
#include "dataplane/runtime/uring/reactor.h"
#include "dataplane/runtime/uring/ring_operation.h"

namespace sarsen::fuse {

class RingChannel final : public Channel {
 public:
  // `connection` has O_NONBLOCK.
  RingChannel(Reactor& reactor, keeper::Descriptor connection)
      : reactor_(reactor), file_(reactor, connection.release()) {}

  Task<void> wait_readable() override;
  int receive(std::span<std::byte> into) override;
  int send(std::span<const std::span<const std::byte>> pieces) override;
  void close() override;

 private:
  Reactor& reactor_;
  RingFile file_;
  RingCompletion* waiting_ = nullptr;
  bool closed_ = false;
};

}  // namespace sarsen::fuse
