#include "dataplane/runtime/uring/buffer_arena.h"

#include <map>

#include "dataplane/base/rng.h"
#include "tests/unit/runtime/uring/uring_testing.h"

namespace sarsen {
namespace {

std::unique_ptr<BufferArena> make_arena(Reactor& reactor, std::uint64_t bytes) {
  auto arena = BufferArena::create({.bytes = bytes, .registered = false}, reactor);
  EXPECT_TRUE(arena) << arena.error().message();
  return *std::move(arena);
}

// Two owners of one page is silent corruption; memory that never comes back is a slow death.
TEST(BufferArena, buffers_never_overlap_and_all_memory_comes_back) {
  const auto reactor = make_reactor();
  const auto arena = make_arena(*reactor, 5 * kMiB + 3 * kBlockBytes);  // no power of two
  const std::uint64_t all = arena->bytes_free();
  EXPECT_EQ(all, 5 * kMiB + 3 * kBlockBytes);
  Rng rng(3);
  std::map<std::byte*, Buffer> held;
  for (int i = 0; i < 20'000; ++i) {
    if (!held.empty() && rng.chance(0.5)) {
      held.erase(std::next(held.begin(), static_cast<long>(rng.below(held.size()))));
      continue;
    }
    auto buffer = arena->allocate(rng.between(1, 96 * kKiB));
    if (!buffer) continue;
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % kBlockBytes, 0u);
    const auto after = held.lower_bound(buffer->data());
    if (after != held.end()) ASSERT_LE(buffer->data() + buffer->size(), after->first);
    if (after != held.begin()) {
      const Buffer& before = std::prev(after)->second;
      ASSERT_LE(before.data() + before.size(), buffer->data());
    }
    std::byte* const begin = buffer->data();
    held.emplace(begin, *std::move(buffer));
  }
  held.clear();
  EXPECT_EQ(arena->bytes_free(), all);
  EXPECT_TRUE(arena->allocate(4 * kMiB)) << "free blocks were joined again";
}

// A journal record of 36 KiB must not cost 64 KiB of locked memory.
TEST(BufferArena, a_buffer_costs_its_size_rounded_up_to_a_block) {
  const auto reactor = make_reactor();
  const auto arena = make_arena(*reactor, kMiB);
  const auto buffer = arena->allocate(33 * kKiB);
  ASSERT_TRUE(buffer);
  EXPECT_EQ(buffer->size(), 36 * kKiB);
  EXPECT_EQ(arena->bytes_free(), kMiB - 36 * kKiB);
}

// The bound is a value to react to, never an abort.
TEST(BufferArena, an_exhausted_arena_answers_out_of_memory_and_works_again_after_a_release) {
  const auto reactor = make_reactor();
  const auto arena = make_arena(*reactor, 64 * kKiB);
  auto all = arena->allocate(64 * kKiB);
  ASSERT_TRUE(all);
  const auto more = arena->allocate(1);
  ASSERT_FALSE(more);
  EXPECT_TRUE(is(more.error(), RuntimeError::out_of_memory)) << more.error().message();
  EXPECT_TRUE(more.error().retryable());
  *all = Buffer();
  EXPECT_TRUE(arena->allocate(64 * kKiB));
  EXPECT_FALSE(arena->allocate(BufferArena::kBufferBytesMax + 1));
  EXPECT_FALSE(arena->allocate(std::size_t{1} << 44));
}

// Fixed I/O on memory that is not registered fails with EFAULT; on registered memory it is wanted.
TEST(BufferArena, registered_memory_is_known_to_the_ring_and_other_memory_is_not) {
  const auto reactor = make_reactor();
  auto arena = BufferArena::create({.bytes = kMiB}, *reactor);
  ASSERT_TRUE(arena) << arena.error().message();
  const auto memory = (*arena)->memory();
  EXPECT_EQ(reactor->fixed_buffer_index(memory.data(), memory.size()), 0);
  EXPECT_EQ(reactor->fixed_buffer_index(memory.data() + kBlockBytes, memory.size()), -1);
  const AlignedMemory other(kBlockBytes);
  EXPECT_EQ(reactor->fixed_buffer_index(other.span().data(), kBlockBytes), -1);
}

// Huge pages and a NUMA node are wishes of the operator that must not break the arena.
TEST(BufferArena, takes_huge_page_advice_and_a_numa_node) {
  const auto reactor = make_reactor();
  auto arena = BufferArena::create(
      {.bytes = 4 * kMiB, .huge_pages = true, .registered = false, .numa_node = 0}, *reactor);
  ASSERT_TRUE(arena) << arena.error().message();
  const auto buffer = (*arena)->allocate(kMiB);
  ASSERT_TRUE(buffer);
  fill(buffer->span(), 1);
}

}  // namespace
}  // namespace sarsen
