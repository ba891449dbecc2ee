// BufferArena: the I/O memory of one shard, one mapping that its ring has registered.
//
// Allocator  A buddy allocator over 4 KiB pages that gives back what an odd size does not use: a
//            request of n pages takes exactly n. Blocks are aligned to their size rounded up to a
//            power of two. Allocation and release cost O(log(kBlockBytesMax / 4 KiB)), and touch
//            only tables beside the memory.
// Bound      `bytes`, all of it resident once registered; the largest buffer is kBufferBytesMax.
// Errors     out_of_memory when no block is large enough; the caller waits for buffers to come
// back. Lifecycle  Outlives its buffers (assert) and the reactor's use of it; dies after the
// reactor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "dataplane/runtime/env.h"

namespace sarsen {

class Reactor;

struct BufferArenaOptions {
  std::uint64_t bytes = 64 * kMiB;  // rounded up to 4 KiB
  bool huge_pages = false;          // advise transparent huge pages
  bool registered = true;           // for fixed I/O; needs RLIMIT_MEMLOCK or CAP_IPC_LOCK
  std::optional<unsigned> numa_node = std::nullopt;
};

class BufferArena final : public BufferPool {
 public:
  static constexpr std::uint64_t kBufferBytesMax = 16 * kMiB;

  // Errors: out_of_memory, memlock_too_low.
  static Result<std::unique_ptr<BufferArena>> create(BufferArenaOptions options, Reactor& reactor);
  ~BufferArena() override;

  Result<Buffer> allocate(std::size_t bytes) override;

  std::span<std::byte> memory() const { return memory_; }
  std::uint64_t bytes_free() const { return pages_free_ * kBlockBytes; }

 private:
  using Page = std::uint32_t;
  static constexpr Page kNone = 0xffffffffu;
  static constexpr unsigned kOrderCount = 13;  // 4 KiB << 12 = kBufferBytesMax
  static constexpr std::uint8_t kNotFree = 0xff;

  // A free block's first page is linked into the list of its order.
  struct PageState {
    Page next = kNone;
    Page previous = kNone;
    std::uint8_t free_order = kNotFree;
  };

  explicit BufferArena(std::span<std::byte> memory);
  void release(std::byte* data, std::size_t size) override;

  void free_range(Page first, Page count);
  void free_block(Page page, unsigned order);
  void link(Page page, unsigned order);
  void unlink(Page page);

  std::span<std::byte> memory_;
  std::vector<PageState> pages_;
  std::array<Page, kOrderCount> lists_;
  std::uint32_t orders_available_ = 0;  // bit n: the list of order n is not empty
  std::uint64_t pages_free_ = 0;
};

}  // namespace sarsen
