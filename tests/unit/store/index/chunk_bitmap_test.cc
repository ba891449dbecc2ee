// A wrong bit in a stored bitmap is a leaked block or a block with two owners.
#include "dataplane/store/index/chunk_bitmap.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dataplane/base/codec.h"
#include "dataplane/base/crc32c.h"
#include "dataplane/base/rng.h"
#include "dataplane/store/index/error.h"

namespace sarsen {
namespace {

const ChunkKeyBytes kKey = encode_chunk_key(LaneId(2), ChunkIndex(0x0102));

std::string hex(std::span<const std::byte> bytes) {
  std::string result;
  for (const std::byte byte : bytes) {
    result += "0123456789abcdef"[std::to_integer<unsigned>(byte) >> 4];
    result += "0123456789abcdef"[std::to_integer<unsigned>(byte) & 15];
  }
  return result;
}

BlockBitmap random_bitmap(Rng& rng, std::uint32_t size) {
  BlockBitmap bitmap(size);
  const double density = rng.unit();
  const std::uint64_t length_max = rng.chance(0.5) ? 1 : 1 + rng.below(size);
  for (std::uint32_t at = 0; at < size;) {
    const auto length =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(rng.between(1, length_max), size - at));
    if (rng.chance(density)) bitmap.set(at, length);
    at += length;
  }
  return bitmap;
}

void seal(std::vector<std::byte>& value) {
  const auto body = std::span(value).first(value.size() - 4);
  store_little_endian(value.data() + body.size(), crc32c(body, crc32c(kKey)));
}

TEST(ChunkKey, sorts_the_chunks_of_a_lane_together) {
  // A lane loads its bitmaps with one scan.
  EXPECT_EQ(hex(kKey), "0000000200000102");
  const auto decoded = decode_chunk_key(kKey);
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(*decoded, (ChunkKey{LaneId(2), ChunkIndex(0x0102)}));
  EXPECT_FALSE(decode_chunk_key(std::span(kKey).first(7)).has_value());
}

TEST(ChunkBitmap, keeps_the_bytes_of_version_1) {
  // Golden bytes of docs/on_disk_format/index.md: both kinds.
  BlockBitmap runs(256);
  runs.set(0, 3);
  runs.set(200, 40);
  EXPECT_EQ(hex(encode_chunk_bitmap(runs, kKey)), "010180020003c5012810b0d0fb87");
  BlockBitmap raw(20);
  for (const std::uint32_t block : {1, 3, 4, 9, 11, 19}) raw.set(block, 1);
  EXPECT_EQ(hex(encode_chunk_bitmap(raw, kKey)), "0100141a0a0839db3c8e");
}

TEST(ChunkBitmap, gives_back_what_was_stored_in_the_shorter_form) {
  // Full and empty chunks, the common ones, take a few bytes; no chunk takes more than a bit a
  // block.
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const auto size = static_cast<std::uint32_t>(rng.between(1, 700));
    const BlockBitmap bitmap = random_bitmap(rng, size);
    const auto value = encode_chunk_bitmap(bitmap, kKey);
    ASSERT_LE(value.size(), 8 + (size + 7) / 8);
    const auto decoded = decode_chunk_bitmap(value, kKey, size);
    ASSERT_TRUE(decoded.has_value()) << decoded.error().message();
    ASSERT_EQ(*decoded, bitmap);
  }
  BlockBitmap full(16384);
  EXPECT_LE(encode_chunk_bitmap(full, kKey).size(), 12u);
  full.set(0, 16384);
  EXPECT_LE(encode_chunk_bitmap(full, kKey).size(), 13u);
}

TEST(ChunkBitmap, refuses_rot_another_key_and_another_size) {
  // Each would hand out blocks that are in use.
  BlockBitmap bitmap(100);
  bitmap.set(7, 30);
  auto value = encode_chunk_bitmap(bitmap, kKey);
  for (std::size_t i = 0; i < value.size() * 8; ++i) {
    const std::byte bit{static_cast<unsigned char>(1u << i % 8)};
    value[i / 8] ^= bit;
    const auto decoded = decode_chunk_bitmap(value, kKey, 100);
    ASSERT_TRUE(!decoded && is(decoded.error(), IndexError::value_corrupt));
    value[i / 8] ^= bit;
  }
  EXPECT_FALSE(decode_chunk_bitmap(value, encode_chunk_key(LaneId(3), ChunkIndex(0x0102)), 100));
  const auto resized = decode_chunk_bitmap(value, kKey, 101);
  EXPECT_TRUE(!resized && is(resized.error(), IndexError::value_malformed));
  value[0] = std::byte{2};
  seal(value);
  const auto newer = decode_chunk_bitmap(value, kKey, 100);
  EXPECT_TRUE(!newer && is(newer.error(), IndexError::format_unsupported));
}

TEST(ChunkBitmap, refuses_or_keeps_changed_values_with_a_right_checksum) {
  // One bitmap, one value; everything else is nonsense.
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const auto size = static_cast<std::uint32_t>(rng.between(1, 200));
    const auto good = encode_chunk_bitmap(random_bitmap(rng, size), kKey);
    for (int i = 0; i < 300; ++i) {
      auto value = good;
      const auto at = value.begin() + static_cast<std::ptrdiff_t>(rng.below(good.size() - 4));
      switch (rng.below(3)) {
        case 0: *at = static_cast<std::byte>(rng.below(256)); break;
        case 1: value.erase(at); break;
        default: value.insert(at, static_cast<std::byte>(rng.below(3))); break;
      }
      seal(value);
      const auto decoded = decode_chunk_bitmap(value, kKey, size);
      if (decoded) ASSERT_EQ(encode_chunk_bitmap(*decoded, kKey), value);
    }
    for (std::size_t length = 0; length < good.size(); ++length) {
      std::vector<std::byte> value(good.begin(),
                                   good.begin() + static_cast<std::ptrdiff_t>(length));
      if (length >= 4) seal(value);
      ASSERT_FALSE(decode_chunk_bitmap(value, kKey, size).has_value());
    }
  }
}

}  // namespace
}  // namespace sarsen
