// Disks and peers hand us arbitrary bytes: the codec must bound every access, whatever they claim.
#include "dataplane/base/codec.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dataplane/base/rng.h"

namespace sarsen {
namespace {

using testing::ElementsAre;

std::vector<std::uint8_t> numbers(std::span<const std::byte> bytes) {
  std::vector<std::uint8_t> result;
  for (const std::byte byte : bytes) result.push_back(std::to_integer<std::uint8_t>(byte));
  return result;
}

enum class Colour : std::uint16_t { red = 0x0102 };

TEST(ByteWriter, writes_little_endian_bytes) {
  // Formats are exchanged between machines, so the byte order is fixed.
  std::array<std::byte, 17> room{};
  ByteWriter writer(room);
  writer.u8(0x01);
  writer.u16(0x0302);
  writer.u32(0x07060504);
  writer.put(MapEpoch(0x0f0e0d0c0b0a0908));
  writer.put(Colour::red);
  ASSERT_TRUE(writer.ok());
  EXPECT_THAT(numbers(writer.written()),
              ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 2, 1));
}

TEST(ByteReader, gives_back_what_was_written) {
  // The pair must agree on every type, signs and strong types included.
  std::array<std::byte, 128> room{};
  ByteWriter writer(room);
  writer.u8(255);
  writer.u16(65535);
  writer.u32(0xfedcba98);
  writer.u64(~std::uint64_t{0});
  writer.i64(-2);
  writer.put(ShardId(7));
  writer.put(Colour::red);
  writer.prefixed_text<std::uint16_t>("pool-1");
  writer.pad_to(16);
  ASSERT_TRUE(writer.ok());
  EXPECT_EQ(writer.offset() % 16, 0u);

  ByteReader reader(writer.written());
  EXPECT_EQ(reader.u8(), 255);
  EXPECT_EQ(reader.u16(), 65535);
  EXPECT_EQ(reader.u32(), 0xfedcba98);
  EXPECT_EQ(reader.u64(), ~std::uint64_t{0});
  EXPECT_EQ(reader.i64(), -2);
  EXPECT_EQ(reader.get<ShardId>(), ShardId(7));
  EXPECT_EQ(reader.get<Colour>(), Colour::red);
  EXPECT_EQ(reader.prefixed_text<std::uint16_t>(64), "pool-1");
  EXPECT_FALSE(reader.finished());
  reader.zeros(reader.remaining());
  EXPECT_TRUE(reader.finished());
}

TEST(ByteReader, stays_failed_after_the_first_field_that_does_not_fit) {
  // A parser asks ok() once at the end, so a later small field must not look readable again.
  const std::array<std::byte, 3> data{std::byte{1}, std::byte{2}, std::byte{3}};
  ByteReader reader(data);
  EXPECT_EQ(reader.u16(), 0x0201);
  EXPECT_EQ(reader.u32(), 0u);
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.u8(), 0);
  EXPECT_TRUE(reader.bytes(0).empty());
  EXPECT_EQ(reader.remaining(), 0u);
  EXPECT_FALSE(reader.finished());
}

TEST(ByteReader, refuses_a_length_that_would_wrap_around) {
  // offset + length must not be computed: the peer chooses the length.
  const std::array<std::byte, 16> data{};
  ByteReader reader(data);
  reader.u64();
  EXPECT_TRUE(reader.bytes(SIZE_MAX).empty());
  EXPECT_FALSE(reader.ok());
}

TEST(ByteReader, refuses_a_prefix_above_the_callers_bound) {
  // The bytes may all be there and the length still be unacceptable.
  const std::array<std::byte, 8> data{std::byte{4}};
  ByteReader within(data);
  EXPECT_EQ(within.prefixed_bytes<std::uint8_t>(4).size(), 4u);
  EXPECT_TRUE(within.ok());
  ByteReader above(data);
  EXPECT_TRUE(above.prefixed_bytes<std::uint8_t>(3).empty());
  EXPECT_FALSE(above.ok());
}

TEST(ByteReader, fills_with_zeros_when_there_is_not_enough) {
  // Half of a key must never pass for a key.
  const std::array<std::byte, 2> data{std::byte{9}, std::byte{9}};
  std::array<std::byte, 4> into{std::byte{5}, std::byte{5}, std::byte{5}, std::byte{5}};
  ByteReader reader(data);
  reader.copy_to(into);
  EXPECT_FALSE(reader.ok());
  EXPECT_THAT(numbers(into), ElementsAre(0, 0, 0, 0));
}

TEST(ByteReader, notices_a_reserved_byte_that_is_not_zero) {
  // Reserved bytes are how a newer format says that an older reader must not go on.
  const std::array<std::byte, 3> data{std::byte{0}, std::byte{0}, std::byte{1}};
  ByteReader reader(data);
  reader.zeros(2);
  EXPECT_TRUE(reader.ok());
  reader.zeros(1);
  EXPECT_FALSE(reader.ok());
}

TEST(ByteWriter, stays_failed_and_writes_nothing_after_an_overflow) {
  // A later small field must not land where the one that did not fit should have been.
  std::array<std::byte, 4> room{};
  ByteWriter writer(room);
  writer.u16(0x0201);
  writer.u32(0xffffffff);
  EXPECT_FALSE(writer.ok());
  writer.u8(0xff);
  writer.zeros(1);
  EXPECT_EQ(writer.offset(), 2u);
  EXPECT_THAT(numbers(room), ElementsAre(1, 2, 0, 0));
}

TEST(ByteWriter, patches_only_what_was_written) {
  // Lengths and checksums are filled in last; a patch beyond the end is a bug that must show.
  std::array<std::byte, 8> room{};
  ByteWriter writer(room);
  writer.u32(0);
  writer.u8(7);
  writer.u32_at(0, writer.offset() == 5 ? 5 : 0);
  EXPECT_TRUE(writer.ok());
  EXPECT_THAT(numbers(writer.written()), ElementsAre(5, 0, 0, 0, 7));
  writer.u32_at(2, 1);
  EXPECT_FALSE(writer.ok());
  EXPECT_THAT(numbers(room), ElementsAre(5, 0, 0, 0, 7, 0, 0, 0));
}

TEST(ByteWriter, refuses_text_longer_than_its_prefix_can_say) {
  // A truncated length would make the reader see other fields.
  std::vector<std::byte> room(1024);
  ByteWriter writer(room);
  writer.prefixed_bytes<std::uint8_t>(std::vector<std::byte>(256));
  EXPECT_FALSE(writer.ok());
  EXPECT_EQ(writer.offset(), 0u);
}

TEST(ByteReader, never_leaves_its_span_whatever_is_asked) {
  // Run under AddressSanitizer: random requests on exactly-sized heap memory.
  Rng rng(11);
  for (int round = 0; round < 2'000; ++round) {
    const std::vector<std::byte> data(rng.below(40), std::byte{0xff});
    ByteReader reader(data);
    std::size_t taken = 0;
    while (reader.ok()) {
      switch (rng.below(5)) {
        case 0: reader.u64(); break;
        case 1: reader.u16(); break;
        case 2: taken += reader.prefixed_bytes<std::uint32_t>(SIZE_MAX).size(); break;
        case 3: taken += reader.bytes(rng.chance(0.1) ? rng.next() : rng.below(12)).size(); break;
        default: reader.skip(rng.below(9)); break;
      }
      if (rng.chance(0.05)) break;
    }
    EXPECT_LE(reader.offset(), data.size());
    EXPECT_LE(taken, data.size());
  }
}

}  // namespace
}  // namespace sarsen
