// A FUSE connection as the server sees it: packets in, packets out.
//
// Shard      One.
// Lifecycle  close() ends the waiting; the kernel's connection stays as it is, for the next server.
#pragma once

#include <cstddef>
#include <span>

#include "dataplane/runtime/task.h"

namespace sarsen::fuse {

class Channel {
 public:
  virtual ~Channel() = default;
  // Until receive() may give something, or close(). One waiter. Spurious returns are allowed.
  virtual Task<void> wait_readable() = 0;
  // The next packet's size, or a negative errno value: -EAGAIN when there is none, -EINTR or
  // -ENOENT when one vanished on the way, -ENODEV after unmounting, -ECONNABORTED after an abort.
  virtual int receive(std::span<std::byte> into) = 0;
  // One packet made of `pieces`. 0 or an errno value: ENOENT when the kernel no longer waits for
  // that answer (it was answered before, or the connection has gone).
  virtual int send(std::span<const std::span<const std::byte>> pieces) = 0;
  // Idempotent.
  virtual void close() = 0;
};

}  // namespace sarsen::fuse
