#include "dataplane/runtime/uring/buffer_arena.h"

#include <algorithm>
#include <bit>

#include <errno.h>
#include <sys/mman.h>

#include "dataplane/runtime/uring/reactor.h"
#include "dataplane/runtime/uring/system_check.h"
#include "dataplane/runtime/uring/thread_options.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#endif
#endif
#ifndef ASAN_POISON_MEMORY_REGION
#define ASAN_POISON_MEMORY_REGION(data, size) (static_cast<void>(data), static_cast<void>(size))
#define ASAN_UNPOISON_MEMORY_REGION(data, size) (static_cast<void>(data), static_cast<void>(size))
#endif

namespace sarsen {

Result<std::unique_ptr<BufferArena>> BufferArena::create(BufferArenaOptions options,
                                                         Reactor& reactor) {
  const std::uint64_t bytes = round_up(options.bytes, kBlockBytes);
  void* const mapped =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    return fail(error_from_errno(errno, "map " + std::to_string(bytes) + " bytes of I/O buffers"));
  }
  std::unique_ptr<BufferArena> arena(new BufferArena({static_cast<std::byte*>(mapped), bytes}));
  if (options.numa_node) SARSEN_TRY(prefer_numa_node(mapped, bytes, *options.numa_node));
  // Advice: a system without huge pages works as well.
  if (options.huge_pages) madvise(mapped, bytes, MADV_HUGEPAGE);
  if (options.registered) {
    if (const int error = reactor.register_buffers(arena->memory_); error != 0) {
      return fail(explain_buffer_registration(error, bytes, read_system_facts()));
    }
  }
  return arena;
}

BufferArena::BufferArena(std::span<std::byte> memory)
    : memory_(memory), pages_(memory.size() / kBlockBytes) {
  lists_.fill(kNone);
  ASAN_POISON_MEMORY_REGION(memory_.data(), memory_.size());
  free_range(0, static_cast<Page>(pages_.size()));
}

BufferArena::~BufferArena() {
  SARSEN_ASSERT(pages_free_ == pages_.size(), "an arena outlives its buffers");
  ASAN_UNPOISON_MEMORY_REGION(memory_.data(), memory_.size());
  munmap(memory_.data(), memory_.size());
}

Result<Buffer> BufferArena::allocate(std::size_t bytes) {
  const std::uint64_t rounded = std::max<std::uint64_t>(round_up(bytes, kBlockBytes), kBlockBytes);
  const auto count = static_cast<Page>(rounded / kBlockBytes);
  const auto order = static_cast<unsigned>(std::bit_width(count - 1));
  const std::uint32_t fitting =
      order < kOrderCount && rounded <= kBufferBytesMax ? orders_available_ >> order : 0;
  if (fitting == 0) [[unlikely]] {
    return fail(make_error(RuntimeError::out_of_memory,
                           "an I/O buffer of " + std::to_string(rounded) + " bytes, " +
                               std::to_string(bytes_free()) + " of " +
                               std::to_string(memory_.size()) + " are free"));
  }
  const unsigned found = order + static_cast<unsigned>(std::countr_zero(fitting));
  const Page page = lists_[found];
  unlink(page);
  pages_free_ -= Page{1} << found;
  free_range(page + count, (Page{1} << found) - count);
  std::byte* const data = memory_.data() + std::uint64_t{page} * kBlockBytes;
  ASAN_UNPOISON_MEMORY_REGION(data, rounded);
  return Buffer(*this, data, rounded);
}

void BufferArena::release(std::byte* data, std::size_t size) {
  const auto first = static_cast<std::uint64_t>(data - memory_.data()) / kBlockBytes;
  SARSEN_ASSERT(first + size / kBlockBytes <= pages_.size(), "the buffer is of this arena");
  ASAN_POISON_MEMORY_REGION(data, size);
  free_range(static_cast<Page>(first), static_cast<Page>(size / kBlockBytes));
}

// Cuts a range into blocks that are aligned to their size.
void BufferArena::free_range(Page first, Page count) {
  while (count > 0) {
    const unsigned alignment =
        first == 0 ? kOrderCount - 1 : static_cast<unsigned>(std::countr_zero(first));
    const unsigned length = static_cast<unsigned>(std::bit_width(count)) - 1;
    const unsigned order = std::min({alignment, length, kOrderCount - 1});
    free_block(first, order);
    first += Page{1} << order;
    count -= Page{1} << order;
  }
}

// Joins the block with its buddy as long as that is free as a whole.
void BufferArena::free_block(Page page, unsigned order) {
  SARSEN_ASSERT(pages_[page].free_order == kNotFree, "a buffer is released once");
  pages_free_ += Page{1} << order;
  for (; order + 1 < kOrderCount; ++order) {
    const Page buddy = page ^ (Page{1} << order);
    if (buddy >= pages_.size() || pages_[buddy].free_order != order) break;
    unlink(buddy);
    page = std::min(page, buddy);
  }
  link(page, order);
}

void BufferArena::link(Page page, unsigned order) {
  const Page head = lists_[order];
  pages_[page] = {head, kNone, static_cast<std::uint8_t>(order)};
  if (head != kNone) pages_[head].previous = page;
  lists_[order] = page;
  orders_available_ |= 1u << order;
}

void BufferArena::unlink(Page page) {
  const PageState state = pages_[page];
  if (state.previous == kNone) {
    lists_[state.free_order] = state.next;
    if (state.next == kNone) orders_available_ &= ~(1u << state.free_order);
  } else {
    pages_[state.previous].next = state.next;
  }
  if (state.next != kNone) pages_[state.next].previous = state.previous;
  pages_[page] = {};
}

}  // namespace sarsen
