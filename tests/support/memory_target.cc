#include "tests/support/memory_target.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace sarsen::test {

// Every operation ends in a later turn than it began, as it would with a network between.
struct MemoryTarget::Turn {
  MemoryTarget& target;
  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> waiter) {
    if (target.held_) {
      target.waiters_.push_back(waiter);
    } else {
      target.executor_.schedule(waiter);
    }
  }
  void await_resume() const {}
};

template <typename Visit>
void MemoryTarget::for_each_block(std::uint64_t offset, std::uint64_t length, Visit visit) {
  std::uint64_t done = 0;
  while (done < length) {
    const std::uint64_t within = (offset + done) % kBlockBytes;
    const std::uint64_t count = std::min<std::uint64_t>(kBlockBytes - within, length - done);
    visit((offset + done) / kBlockBytes, within, done, count);
    done += count;
  }
}

void MemoryTarget::release() {
  held_ = false;
  for (const auto waiter : std::exchange(waiters_, {})) executor_.schedule(waiter);
}

Result<void> MemoryTarget::outcome() const {
  if (failure_) return fail(*failure_);
  return {};
}

Task<Result<void>> MemoryTarget::read(std::uint64_t offset, std::span<std::byte> into) {
  SARSEN_ASSERT(offset <= size_bytes_ && into.size() <= size_bytes_ - offset, "within the size");
  co_await Turn{*this};
  for_each_block(offset, into.size(), [&](auto index, auto within, auto done, auto count) {
    const auto found = blocks_.find(index);
    if (found == blocks_.end()) {
      std::memset(into.data() + done, 0, count);
    } else {
      std::memcpy(into.data() + done, found->second.data() + within, count);
    }
  });
  co_return outcome();
}

Task<Result<void>> MemoryTarget::write(std::uint64_t offset, std::span<const std::byte> from) {
  SARSEN_ASSERT(offset <= size_bytes_ && from.size() <= size_bytes_ - offset, "within the size");
  co_await Turn{*this};
  if (failure_) co_return outcome();
  for_each_block(offset, from.size(), [&](auto index, auto within, auto done, auto count) {
    Block& block = blocks_[index];
    block.resize(kBlockBytes);
    std::memcpy(block.data() + within, from.data() + done, count);
  });
  co_return outcome();
}

Task<Result<void>> MemoryTarget::trim(std::uint64_t offset, std::uint64_t length) {
  return write_zeroes(offset, length, /*keep_allocated=*/false);
}

Task<Result<void>> MemoryTarget::write_zeroes(std::uint64_t offset, std::uint64_t length,
                                              bool keep_allocated) {
  SARSEN_ASSERT(offset <= size_bytes_ && length <= size_bytes_ - offset, "within the size");
  co_await Turn{*this};
  if (failure_) co_return outcome();
  if (!keep_allocated) {
    // Whole blocks are given up; only the ragged ends are visited one by one below.
    const std::uint64_t first = (offset + kBlockBytes - 1) / kBlockBytes;
    const std::uint64_t last = (offset + length) / kBlockBytes;
    if (first < last) blocks_.erase(blocks_.lower_bound(first), blocks_.lower_bound(last));
  }
  for_each_block(offset, length, [&](auto index, auto within, auto, auto count) {
    const auto found = blocks_.find(index);
    if (found == blocks_.end() && !keep_allocated) return;
    Block& block = found == blocks_.end() ? blocks_[index] : found->second;
    block.resize(kBlockBytes);
    std::memset(block.data() + within, 0, count);
  });
  co_return outcome();
}

Task<Result<void>> MemoryTarget::flush() {
  co_await Turn{*this};
  co_return outcome();
}

Task<Result<std::vector<BlockStatus>>> MemoryTarget::status(std::uint64_t offset,
                                                            std::uint64_t length,
                                                            std::uint32_t runs_max) {
  co_await Turn{*this};
  if (failure_) co_return fail(*failure_);
  std::vector<BlockStatus> runs;
  std::uint64_t at = offset;
  const std::uint64_t end = offset + length;
  while (at < end && runs.size() < runs_max) {
    auto next = blocks_.lower_bound(at / kBlockBytes);
    const bool allocated = next != blocks_.end() && next->first == at / kBlockBytes;
    std::uint64_t stop = end;
    if (!allocated && next != blocks_.end()) {
      stop = std::min(end, next->first * kBlockBytes);
    } else if (allocated) {
      std::uint64_t index = next->first;
      while (next != blocks_.end() && next->first == index) ++next, ++index;
      stop = std::min(end, index * kBlockBytes);
    }
    runs.push_back({stop - at, allocated});
    at = stop;
  }
  co_return runs;
}

}  // namespace sarsen::test
