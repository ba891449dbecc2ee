#include <gtest/gtest.h>

#include "dataplane/client/attached_session.h"

namespace sarsen {
namespace {

// Every byte of a range must go to exactly one object, or data is lost at an object's edge.
TEST(SplitByObject, covers_the_range_once_and_in_order) {
  const std::uint64_t offset = 3 * std::uint64_t{kObjectBytes} - 1000;
  const auto parts = split_by_object(offset, kObjectBytes + 3000);
  ASSERT_EQ(parts.size(), 3u);
  std::uint64_t at = offset;
  for (const ObjectPart& part : parts) {
    EXPECT_EQ(part.offset(), at);
    EXPECT_LE(part.range.offset + part.range.length, kObjectBytes);
    at += part.range.length;
  }
  EXPECT_EQ(at, offset + kObjectBytes + 3000);
  EXPECT_EQ(parts[0].object, wire::ObjectNumber(2));
  EXPECT_EQ(parts[2].range.offset, 0u);
}

// An empty range would be a malformed message.
TEST(SplitByObject, makes_no_part_of_nothing) {
  EXPECT_TRUE(split_by_object(kObjectBytes, 0).empty());
}

}  // namespace
}  // namespace sarsen
