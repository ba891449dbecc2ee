#include "dataplane/store/metadata/compaction_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dataplane/store/metadata/unit_space.h"

namespace sarsen::test {
namespace {

using ::testing::ElementsAre;

const CompactionLimits kLimits{.level0_files_min = 2,
                               .level0_files_max = 3,
                               .whole_merge_bytes_max = 100,
                               .table_file_bytes = 50};

TableFileShape file(const char* name, std::uint64_t size, const char* smallest,
                    const char* largest) {
  return {name, size, smallest, largest};
}

TEST(CompactionPolicy, leaves_a_family_with_few_flushes_alone) {
  // Merging early writes the whole family again for little.
  FamilyShape family(kCompactionLevels);
  EXPECT_FALSE(pick_compaction(family, kLimits));
  family[0] = {file("1", 10, "a", "z")};
  family[kBottomLevel] = {file("0", 1000, "a", "z")};
  EXPECT_FALSE(pick_compaction(family, kLimits));
}

TEST(CompactionPolicy, waits_until_the_flushes_outweigh_what_they_are_merged_into) {
  // Small flushes over a big family: each merge writes the whole family again, so let there be few.
  FamilyShape family(kCompactionLevels);
  family[kBottomLevel] = {file("0", 100, "a", "z")};
  family[0] = {file("2", 30, "a", "z"), file("1", 30, "a", "z")};
  EXPECT_FALSE(pick_compaction(family, kLimits));
  family[0].front().size_bytes = 70;
  EXPECT_TRUE(pick_compaction(family, kLimits));
  family[0] = {file("3", 1, "a", "z"), file("2", 1, "a", "z"), file("1", 1, "a", "z")};
  EXPECT_TRUE(pick_compaction(family, kLimits)) << "but a lookup must not ask too many files";
}

TEST(CompactionPolicy, merges_a_small_family_whole_into_the_bottom) {
  // One write of everything per level0_files_max flushes is the least there is.
  FamilyShape family(kCompactionLevels);
  family[0] = {file("2", 60, "a", "z"), file("1", 60, "a", "z")};
  family[kBottomLevel] = {file("0", 100, "a", "z")};
  const auto pick = pick_compaction(family, kLimits);
  ASSERT_TRUE(pick);
  EXPECT_THAT(pick->inputs, ElementsAre("2", "1", "0"));
  EXPECT_EQ(pick->output_level, kBottomLevel);
  EXPECT_EQ(pick->input_bytes, 220u);
}

TEST(CompactionPolicy, merges_a_big_family_through_the_middle_in_bounded_steps) {
  // A step over the whole index of a big device would take minutes and as much space again.
  FamilyShape family(kCompactionLevels);
  family[0] = {file("2", 300, "a", "z"), file("1", 30, "a", "z")};
  family[kMiddleLevel] = {file("3", 50, "c", "f"), file("4", 50, "g", "k")};
  family[kBottomLevel] = {file("5", 50, "a", "b"), file("6", 50, "c", "d"), file("7", 50, "e", "g"),
                          file("8", 50, "h", "z")};
  auto pick = pick_compaction(family, kLimits);
  ASSERT_TRUE(pick);
  EXPECT_THAT(pick->inputs, ElementsAre("2", "1", "3", "4"));
  EXPECT_EQ(pick->output_level, kMiddleLevel);
  family[0].clear();
  pick = pick_compaction(family, kLimits);
  ASSERT_TRUE(pick);
  EXPECT_THAT(pick->inputs, ElementsAre("3", "6", "7"));
  EXPECT_EQ(pick->output_level, kBottomLevel);
}

TEST(UnitSpace, takes_neighbours_first_and_copies_from_the_other_end) {
  // Long runs make few extents; copies far apart do not rot together.
  UnitSpace space;
  space.add({10, 10});
  space.add({30, 5});
  EXPECT_EQ(space.take(0xffffffff, false), 10u);
  EXPECT_EQ(space.take(11, false), 11u);
  EXPECT_EQ(space.take(0xffffffff, true), 34u);
  EXPECT_EQ(space.take(32, false), 32u);
  EXPECT_EQ(space.take(33, true), 33u);
  EXPECT_EQ(space.free_units(), 10u);
  EXPECT_FALSE(space.take_all({12, 9}));
  EXPECT_TRUE(space.take_all({12, 8}));
  EXPECT_EQ(space.take(0, false), 30u);
  EXPECT_EQ(space.take(0, false), 31u);
  EXPECT_EQ(space.take(0, false), std::nullopt);
}

TEST(UnitSpace, joins_what_is_given_back) {
  // Else a chunk could never be returned whole.
  UnitSpace space;
  for (const std::uint32_t unit : {3u, 1u, 0u, 2u}) space.add({unit, 1});
  EXPECT_TRUE(space.take_all({0, 4}));
  EXPECT_EQ(space.free_units(), 0u);
}

TEST(UnitSpaceDeathTest, a_unit_is_freed_once) {
  // I-META-2: the second owner would overwrite the first.
  UnitSpace space;
  space.add({4, 4});
  EXPECT_DEATH(space.add({5, 1}), "I-META-2");
  EXPECT_DEATH(space.add({3, 2}), "I-META-2");
  EXPECT_DEATH(space.add({7, 2}), "I-META-2");
}

}  // namespace
}  // namespace sarsen::test
