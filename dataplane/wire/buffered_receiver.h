// The bytes of a connection in the sizes that a parser asks for.
//
// Receives ahead into one buffer of fixed size, so that many small messages cost one receive; large
// payloads go straight to where they belong. Shard: one; one operation at a time. Borrows the
// connection. Errors: those of Connection::receive(); connection_reset when the peer ended in the
// middle of what was asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "dataplane/base/assert.h"
#include "dataplane/base/result.h"
#include "dataplane/runtime/env.h"
#include "dataplane/runtime/task.h"

namespace sarsen::wire {

class BufferedReceiver {
 public:
  BufferedReceiver(Connection& connection, std::size_t capacity)
      : connection_(connection),
        buffer_(std::make_unique_for_overwrite<std::byte[]>(capacity)),
        capacity_(capacity) {}

  // How many bytes can be taken without waiting.
  std::size_t available() const { return end_ - begin_; }
  // Waits until `count` bytes (at most the capacity) are available. False when the peer ended and
  // nothing is left.
  Task<Result<bool>> fill(std::size_t count);
  // The next `count` available bytes, in place, valid until the next fill(), read() or skip().
  std::span<const std::byte> take(std::size_t count) {
    SARSEN_ASSERT(count <= available(), "only what is available can be taken");
    begin_ += count;
    return {buffer_.get() + begin_ - count, count};
  }
  // Fills `into`.
  Task<Result<void>> read(std::span<std::byte> into);
  // Receives and drops `count` bytes.
  Task<Result<void>> skip(std::uint64_t count);

 private:
  Connection& connection_;
  std::unique_ptr<std::byte[]> buffer_;
  std::size_t capacity_;
  std::size_t begin_ = 0, end_ = 0;
};

}  // namespace sarsen::wire
