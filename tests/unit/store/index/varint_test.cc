// Two encodings of one number would make two encodings of one leaf.
#include "dataplane/store/index/varint.h"

#include <array>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/store/index/leaf_samples.h"

namespace sarsen {
namespace {

bool reads(std::vector<std::uint8_t> bytes) {
  ByteReader reader(std::as_bytes(std::span(bytes)));
  read_varint(reader);
  return reader.finished();
}

TEST(Varint, survives_encoding_in_as_few_bytes_as_it_says) {
  // Sizes are estimated by varint_bytes before anything is written.
  Rng rng(1);
  for (int i = 0; i < 20000; ++i) {
    const std::uint64_t value = any_number(rng);
    std::array<std::byte, kVarintBytesMax> room;
    ByteWriter writer(room);
    write_varint(writer, value);
    ASSERT_TRUE(writer.ok());
    ASSERT_EQ(writer.offset(), varint_bytes(value));
    ByteReader reader(writer.written());
    ASSERT_EQ(read_varint(reader), value);
    ASSERT_TRUE(reader.finished());
  }
}

TEST(Varint, refuses_what_is_cut_off_too_long_or_too_large) {
  // Each is another spelling of a number, or no number of 64 bits.
  EXPECT_TRUE(reads({0x00}));
  EXPECT_TRUE(reads({0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}));
  EXPECT_FALSE(reads({}));
  EXPECT_FALSE(reads({0x80}));
  EXPECT_FALSE(reads({0x80, 0x00}));
  EXPECT_FALSE(reads({0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02}));
  EXPECT_FALSE(reads({0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x81, 0x00}));
}

TEST(Varint, differences_work_in_both_directions_and_across_the_ends) {
  // Device blocks and epochs of neighbours differ by little, up or down.
  EXPECT_EQ(zigzag_difference(10, 10), 0u);
  EXPECT_EQ(zigzag_difference(10, 9), 1u);
  EXPECT_EQ(zigzag_difference(10, 11), 2u);
  Rng rng(2);
  for (int i = 0; i < 20000; ++i) {
    const std::uint64_t a = any_number(rng);
    const std::uint64_t b = rng.chance(0.5) ? ~any_number(rng) : any_number(rng);
    ASSERT_EQ(apply_zigzag(a, zigzag_difference(a, b)), b);
  }
}

}  // namespace
}  // namespace sarsen
