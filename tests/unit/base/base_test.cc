#include <cstring>

#include <gtest/gtest.h>

#include "dataplane/base/crc32c.h"
#include "dataplane/base/intrusive_list.h"
#include "dataplane/base/rng.h"
#include "dataplane/base/units.h"

namespace sarsen {
namespace {

std::span<const std::byte> bytes_of(const char* text) {
  return std::as_bytes(std::span(text, std::strlen(text)));
}

// The published check value: a store written by one build must verify with every other.
TEST(Crc32c, gives_the_check_value_of_the_standard) {
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xe3069283u);
  EXPECT_EQ(crc32c({}), 0u);
}

TEST(Crc32c, of_pieces_equals_crc_of_the_whole) {
  const auto text = bytes_of("a torn tail is not a rotten middle");
  const auto first = crc32c(text.first(11));
  EXPECT_EQ(crc32c(text.subspan(11), first), crc32c(text));
}

TEST(Rng, repeats_from_its_seed_and_splits_independently) {
  Rng a(7), b(7);
  Rng branch = a.split();
  (void)b.split();
  (void)branch.next();  // drawing from a branch must not shift its trunk
  for (int i = 0; i < 100; ++i) EXPECT_EQ(a.next(), b.next());
  for (int i = 0; i < 1000; ++i) EXPECT_LT(a.below(10), 10u);
}

struct Item : ListNode {
  explicit Item(int v) : value(v) {}
  int value;
};

TEST(IntrusiveList, survives_the_death_of_either_side) {
  Item first(1);
  {
    IntrusiveList<Item> list;
    list.push_back(first);
    {
      Item second(2);
      list.push_back(second);
    }
    EXPECT_EQ(&list.front(), &list.back());
  }
  EXPECT_FALSE(first.linked());
}

TEST(Units, round_to_powers_of_two) {
  EXPECT_EQ(round_up(1, kBlockBytes), kBlockBytes);
  EXPECT_EQ(round_up(kBlockBytes, kBlockBytes), kBlockBytes);
  EXPECT_EQ(round_down(kBlockBytes + 1, kBlockBytes), kBlockBytes);
}

}  // namespace
}  // namespace sarsen
