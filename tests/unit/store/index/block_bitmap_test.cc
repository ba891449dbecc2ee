// The allocator's speed stands on working on 64 blocks at a time, its safety on getting the edges
// right.
#include "dataplane/store/index/block_bitmap.h"

#include <optional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dataplane/base/rng.h"

namespace sarsen {
namespace {

std::optional<std::uint32_t> naive_run(const std::vector<bool>& bits, std::uint32_t from,
                                       std::uint32_t to, std::uint32_t want) {
  std::uint32_t run = 0;
  for (std::uint32_t at = from; at < to; ++at) {
    run = bits[at] ? 0 : run + 1;
    if (run == want) return at + 1 - want;
  }
  return std::nullopt;
}

TEST(BlockBitmap, behaves_like_a_vector_of_bools) {
  // Random ranges at every alignment, in sizes that are and are not multiples of 64.
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const auto size = static_cast<std::uint32_t>(rng.between(1, 400));
    BlockBitmap bitmap(size);
    std::vector<bool> model(size);
    const std::uint64_t length_max = rng.chance(0.5) ? 8 : size;
    for (int step = 0; step < 60; ++step) {
      const auto from = static_cast<std::uint32_t>(rng.below(size + 1));
      const auto count = static_cast<std::uint32_t>(
          rng.below(std::min<std::uint64_t>(length_max, size - from) + 1));
      const bool set = rng.chance(0.6);
      set ? bitmap.set(from, count) : bitmap.clear(from, count);
      for (std::uint32_t i = from; i < from + count; ++i) model[i] = set;

      const auto begin = static_cast<std::uint32_t>(rng.below(size));
      const auto end = static_cast<std::uint32_t>(rng.between(begin, size));
      std::uint32_t ones = 0;
      std::uint32_t first_set = end;
      std::uint32_t first_clear = end;
      for (std::uint32_t i = end; i-- > begin;) {
        ones += model[i];
        (model[i] ? first_set : first_clear) = i;
      }
      ASSERT_EQ(bitmap.test(begin), model[begin]);
      ASSERT_EQ(bitmap.count(begin, end - begin), ones);
      ASSERT_EQ(bitmap.any(begin, end - begin), ones > 0);
      ASSERT_EQ(bitmap.all(begin, end - begin), ones == end - begin);
      ASSERT_EQ(bitmap.next_set(begin, end), first_set);
      ASSERT_EQ(bitmap.next_clear(begin, end), first_clear);
      const auto want = static_cast<std::uint32_t>(rng.between(1, rng.chance(0.5) ? 6 : 200));
      ASSERT_EQ(bitmap.find_clear_run(begin, end, want), naive_run(model, begin, end, want));
    }
  }
}

TEST(BlockBitmap, finds_a_run_across_words) {
  // The longest runs have whole words in them.
  BlockBitmap bitmap(512);
  bitmap.set(0, 512);
  bitmap.clear(100, 300);
  EXPECT_EQ(bitmap.find_clear_run(0, 512, 300), 100u);
  EXPECT_EQ(bitmap.find_clear_run(0, 512, 301), std::nullopt);
  EXPECT_EQ(bitmap.find_clear_run(130, 400, 270), 130u);
  EXPECT_EQ(bitmap.find_clear_run(131, 400, 270), std::nullopt);
}

}  // namespace
}  // namespace sarsen
