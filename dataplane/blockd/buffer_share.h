// A part of the shard's I/O memory that one image may use, so that an image that hangs with its
// requests in memory leaves the others theirs.
//
// Shares     All of one BufferShares; each may have an equal part of what there is, and at least
//            kShareBytesMin. They add up to less than the pool: sessions allocate from the rest.
// Lifecycle  BufferShares, then its shares, outlive what was allocated.   Shard: one.
// Errors     out_of_memory: the share is used up; the frontend waits for its own requests to end.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>

#include "dataplane/base/assert.h"
#include "dataplane/runtime/env.h"

namespace sarsen::blockd {

// What a frontend needs to run at all: a few requests of the greatest size.
inline constexpr std::uint64_t kShareBytesMin = 8 * kMiB;

class BufferShares {
 public:
  BufferShares(BufferPool& pool, std::uint64_t bytes) : pool_(pool), bytes_(bytes) {}

 private:
  friend class BufferShare;
  std::uint64_t bytes_of_one() const { return std::max(kShareBytesMin, bytes_ / (count_ + 1)); }

  BufferPool& pool_;
  const std::uint64_t bytes_;
  std::uint64_t count_ = 0;
};

class BufferShare final : public BufferPool {
 public:
  explicit BufferShare(BufferShares& shares) : shares_(shares) { ++shares_.count_; }
  BufferShare(const BufferShare&) = delete;
  BufferShare& operator=(const BufferShare&) = delete;
  ~BufferShare() override {
    SARSEN_ASSERT(buffers_.empty(), "a share outlives its buffers");
    --shares_.count_;
  }

  Result<Buffer> allocate(std::size_t bytes) override {
    bytes = round_up(bytes, kBlockBytes);
    if (bytes_used_ + bytes > shares_.bytes_of_one()) {
      return fail(make_error(RuntimeError::out_of_memory, "the image's share of I/O memory"));
    }
    auto buffer = shares_.pool_.allocate(bytes);
    if (!buffer) return buffer;
    const std::span<std::byte> memory = buffer->span();
    bytes_used_ += memory.size();
    buffers_.emplace(memory.data(), std::move(*buffer));
    return Buffer(*this, memory.data(), memory.size());
  }
  std::uint64_t bytes_used() const { return bytes_used_; }

 private:
  void release(std::byte* data, std::size_t size) override {
    bytes_used_ -= size;
    buffers_.erase(data);
  }

  BufferShares& shares_;
  std::uint64_t bytes_used_ = 0;
  std::unordered_map<std::byte*, Buffer> buffers_;
};

}  // namespace sarsen::blockd
