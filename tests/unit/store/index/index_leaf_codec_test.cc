// Leaves come back from a disk: every byte may be wrong, and every version must read the old ones.
#include "dataplane/store/index/index_leaf_codec.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dataplane/base/crc32c.h"
#include "dataplane/store/index/error.h"
#include "tests/unit/store/index/leaf_samples.h"

namespace sarsen {
namespace {

LeafKeyBytes sample_key() {
  return encode_leaf_key({{PoolId(3), 1, 2, 1}, 5});
}

std::vector<std::byte> encoded(const IndexLeaf& leaf) {
  LeafValueBuffer buffer;
  const auto value = encode_leaf(leaf, sample_key(), buffer);
  return {value.begin(), value.end()};
}

std::string hex(std::span<const std::byte> bytes) {
  std::string result;
  for (const std::byte byte : bytes) {
    result += "0123456789abcdef"[std::to_integer<unsigned>(byte) >> 4];
    result += "0123456789abcdef"[std::to_integer<unsigned>(byte) & 15];
  }
  return result;
}

// Makes the checksum right again after the bytes before it were changed.
void seal(std::vector<std::byte>& value) {
  const auto body = std::span(value).first(value.size() - 4);
  store_little_endian(value.data() + body.size(), crc32c(body, crc32c(sample_key())));
}

// A refused value, or one that encodes to exactly these bytes (I-INDEX-4).
void expect_refused_or_canonical(const std::vector<std::byte>& value) {
  const auto leaf = decode_leaf(value, sample_key());
  if (!leaf) {
    ASSERT_EQ(&leaf.error().category(), &index_errors());
    return;
  }
  ASSERT_TRUE(leaf->validate().has_value());
  ASSERT_EQ(hex(encoded(*leaf)), hex(value));
}

// A home area of 64 KiB that 16 separate writes filled, in any order, over a long time.
IndexLeaf leaf_of_small_writes(Rng& rng) {
  IndexLeaf leaf;
  const std::uint64_t recent = std::uint64_t{1} << 33;  // writes since the oldest one
  const std::uint64_t lane_oldest = rng.next() >> 20;
  const std::uint64_t pg_oldest = rng.next() >> 24;
  for (std::uint32_t block = 0; block < kLeafBlocks; ++block) {
    Extent extent = plain_extent(block, 1, (std::uint64_t{1} << 31) + block);
    extent.lane_sequence = LaneSequence(lane_oldest + rng.below(recent));
    extent.pg_sequence = PgSequence(pg_oldest + rng.below(recent));
    extent.pg_epoch = PgEpoch(1000);
    extent.change_generation = 40;
    extent.checksums[0] = static_cast<std::uint32_t>(rng.next());
    leaf.put(extent);
  }
  return leaf;
}

TEST(IndexLeafCodec, keeps_the_bytes_of_version_1) {
  // Golden bytes of docs/on_disk_format/index.md: stores of today must be readable for ever.
  IndexLeaf leaf;
  Extent large = plain_extent(0, 2, 0x20000, 0x1000);
  large.change_generation = 4;
  large.checksums = {0x11223344, 0x55667788};
  leaf.put(large);
  Extent small = plain_extent(2, 1, 0x20002, 0x1234);
  small.change_generation = 4;
  small.checksums = {0x99aabbcc};
  leaf.put(small);
  EXPECT_EQ(hex(encoded(leaf)),
            "01028020e420000180801006080000443322118877665547b404b404ccbbaa99dbc6aa92");
}

TEST(IndexLeafCodec, keeps_the_bytes_of_every_option_of_version_1) {
  // Nothing writes these yet, but their place is part of the first format (rule S7).
  Extent extent = plain_extent(4, 8, 0x20000, 0x1000);
  extent.shared = true;
  extent.corrupt = true;
  auto options = std::make_shared<ExtentOptions>();
  options->compression = Compression{2, 5000, 12, 3};
  options->encryption = Encryption{300, {BlockSeal{}, BlockSeal{}}};
  options->encryption->seals[1].nonce[11] = std::byte{0xaa};
  options->encryption->seals[1].tag[15] = std::byte{0xbb};
  options->reference = 77;
  options->erasure = ErasureShard{5, 129};
  extent.options = options;
  extent.checksums = {1, 2};
  IndexLeaf leaf;
  leaf.put(extent);
  EXPECT_EQ(hex(encoded(leaf)),
            "01018020e4203c470ff8ff0f0600000288273bac024d058101010000000200000000000000000000"
            "0000000000000000000000000000000000000000000000000000000000000000aa00000000000000"
            "0000000000000000bb87f1359f");
}

TEST(IndexLeafCodec, gives_back_the_leaf_and_the_bytes) {
  // I-INDEX-4, for leaves with every option.
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const IndexLeaf leaf = any_leaf(rng, seed % 2 == 0 ? 0.0 : 0.4);
    const auto value = encoded(leaf);
    const auto decoded = decode_leaf(value, sample_key());
    ASSERT_TRUE(decoded.has_value()) << decoded.error().message();
    ASSERT_EQ(*decoded, leaf);
    ASSERT_EQ(encoded(*decoded), value);
  }
}

TEST(IndexLeafCodec, fits_the_longest_leaf) {
  // The buffer is sized by arithmetic; the arithmetic must hold for the worst leaf.
  std::vector<Extent> extents;
  for (std::uint8_t block = 0; block < kLeafBlocks; ++block) {
    Extent extent;
    extent.first_block = block;
    extent.block_count = 1;
    extent.shared = true;
    const bool odd = block % 2 != 0;
    extent.device_block = BlockIndex(odd ? kDeviceBlocksMax - 16 : 0);
    extent.lane_sequence = LaneSequence(odd ? ~std::uint64_t{0} : 0);
    extent.pg_epoch = PgEpoch(odd ? std::uint64_t{1} << 63 : 0);
    extent.pg_sequence = PgSequence(odd ? ~std::uint64_t{0} : 0);
    extent.change_generation = odd ? std::uint64_t{1} << 63 : 0;
    auto options = std::make_shared<ExtentOptions>();
    options->compression = Compression{1, kLeafBlocks * kBlockBytes, kLeafBlocks, block};
    options->encryption = Encryption{~std::uint64_t{0}, std::vector<BlockSeal>(kLeafBlocks)};
    options->reference = ~std::uint64_t{0};
    options->erasure = ErasureShard{255, ~std::uint64_t{0}};
    extent.options = options;
    extent.checksums.assign(kLeafBlocks, 1);
    extents.push_back(extent);
  }
  const auto leaf = IndexLeaf::from_extents(extents);
  ASSERT_TRUE(leaf.has_value()) << leaf.error().message();
  const auto value = encoded(*leaf);
  EXPECT_GT(value.size(), kLeafValueBytesMax * 8 / 10);
  EXPECT_EQ(*decode_leaf(value, sample_key()), *leaf);
}

TEST(IndexLeafCodec, is_small) {
  // Each random destage rewrites one value (rule S4): its size times compaction is the write
  // amplification of the index.
  Rng rng(5);
  for (int i = 0; i < 200; ++i) EXPECT_LE(encoded(leaf_of_small_writes(rng)).size(), 300u);
  IndexLeaf large;
  Extent extent = plain_extent(0, 16, std::uint64_t{1} << 31, std::uint64_t{1} << 44);
  extent.change_generation = 40;
  large.put(extent);
  EXPECT_LE(encoded(large).size(), 130u);
}

TEST(IndexLeafCodec, finds_every_flipped_bit) {
  // Rot must never become a place on the device.
  Rng rng(6);
  auto value = encoded(leaf_of_small_writes(rng));
  for (std::size_t i = 0; i < value.size() * 8; ++i) {
    const std::byte bit{static_cast<unsigned char>(1u << i % 8)};
    value[i / 8] ^= bit;
    const auto leaf = decode_leaf(value, sample_key());
    ASSERT_FALSE(leaf.has_value());
    ASSERT_TRUE(is(leaf.error(), IndexError::value_corrupt));
    value[i / 8] ^= bit;
  }
}

TEST(IndexLeafCodec, refuses_a_good_value_under_another_key) {
  // A misdirected value names somebody else's data.
  IndexLeaf leaf;
  leaf.put(plain_extent(0, 1, 100));
  const auto value = encoded(leaf);
  LeafKeyBytes other = sample_key();
  other[33] ^= std::byte{1};
  const auto decoded = decode_leaf(value, other);
  ASSERT_FALSE(decoded.has_value());
  EXPECT_TRUE(is(decoded.error(), IndexError::value_corrupt));
  EXPECT_EQ(decoded.error().error_class(), ErrorClass::corrupt);
}

TEST(IndexLeafCodec, tells_a_newer_version_from_rot) {
  // A downgrade must be refused; repairing from a peer would not help.
  auto value = encoded(IndexLeaf());
  value[0] = std::byte{2};
  seal(value);
  const auto leaf = decode_leaf(value, sample_key());
  ASSERT_FALSE(leaf.has_value());
  EXPECT_TRUE(is(leaf.error(), IndexError::format_unsupported));
}

TEST(IndexLeafCodec, refuses_or_keeps_changed_values_with_a_right_checksum) {
  // A checksum is no proof of sense: a bug or an attacker can make one.
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const auto good = encoded(any_leaf(rng, seed % 2 == 0 ? 0.0 : 0.4));
    for (std::size_t i = 0; i + 4 < good.size(); ++i) {
      for (const int change : {0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xff}) {
        auto value = good;
        value[i] ^= static_cast<std::byte>(change);
        seal(value);
        ASSERT_NO_FATAL_FAILURE(expect_refused_or_canonical(value));
      }
      auto cut = good;
      cut.erase(cut.begin() + static_cast<std::ptrdiff_t>(i));
      seal(cut);
      ASSERT_NO_FATAL_FAILURE(expect_refused_or_canonical(cut));
      auto longer = good;
      longer.insert(longer.begin() + static_cast<std::ptrdiff_t>(i), std::byte{0});
      seal(longer);
      ASSERT_NO_FATAL_FAILURE(expect_refused_or_canonical(longer));
    }
    for (std::size_t length = 0; length < good.size(); ++length) {
      std::vector<std::byte> value(good.begin(),
                                   good.begin() + static_cast<std::ptrdiff_t>(length));
      if (length >= 4) seal(value);
      ASSERT_FALSE(decode_leaf(value, sample_key()).has_value());
    }
  }
}

// A value with these bytes before a right checksum.
bool refused(std::vector<std::uint8_t> body) {
  std::vector<std::byte> value(body.size() + 4);
  std::transform(body.begin(), body.end(), value.begin(),
                 [](auto byte) { return std::byte{byte}; });
  seal(value);
  const auto leaf = decode_leaf(value, sample_key());
  return !leaf && is(leaf.error(), IndexError::value_malformed);
}

TEST(IndexLeafCodec, refuses_numbers_that_wrap) {
  // A number that wraps is a second spelling of a small one.
  constexpr std::uint8_t kTag = 0x47;  // home, epoch, generation as before; next block
  EXPECT_FALSE(refused({1, 2, 5, 5, kTag, 0, 0, 0, 0, 0, 0, kTag, 1, 1, 0, 0, 0, 0}));
  const auto wrapping = [](bool lane) {
    std::vector<std::uint8_t> body = {1, 2, 5, 5, kTag, 0, 0, 0, 0, 0, 0, kTag};
    const std::vector<std::uint8_t> all_ones = {0xff, 0xff, 0xff, 0xff, 0xff,
                                                0xff, 0xff, 0xff, 0xff, 0x01};
    if (!lane) body.push_back(1);
    body.insert(body.end(), all_ones.begin(), all_ones.end());
    if (lane) body.push_back(1);
    body.insert(body.end(), {0, 0, 0, 0});
    return body;
  };
  EXPECT_TRUE(refused(wrapping(true)));
  EXPECT_TRUE(refused(wrapping(false)));
}

TEST(IndexLeafCodec, refuses_bases_that_are_not_the_minimum) {
  // The same leaf could be spelt with any lower base.
  EXPECT_FALSE(refused({1, 1, 5, 5, 0x47, 0, 0, 0, 0, 0, 0}));
  EXPECT_TRUE(refused({1, 1, 4, 5, 0x47, 1, 0, 0, 0, 0, 0}));
  EXPECT_TRUE(refused({1, 1, 5, 4, 0x47, 0, 1, 0, 0, 0, 0}));
}

TEST(IndexLeafCodec, refuses_a_compressed_length_beyond_32_bits) {
  // Cut to 32 bits it would look like a small one.
  EXPECT_FALSE(refused({1, 1, 5, 5, 0x67, 1, 0, 0, 7, 0x80, 0x01, 0, 0, 0, 0, 0}));
  EXPECT_TRUE(refused({1, 1, 5, 5, 0x67, 1, 0, 0, 7, 0x80, 0x81, 0x80, 0x80, 0x10, 0, 0, 0, 0, 0}));
}

TEST(IndexLeafCodec, survives_noise) {
  // Nothing may be read beyond the bytes or believed of them.
  Rng rng(7);
  for (int i = 0; i < 100000; ++i) {
    std::vector<std::byte> value(6 + rng.below(64));
    for (auto& byte : value) byte = static_cast<std::byte>(rng.below(rng.chance(0.5) ? 256 : 4));
    value[0] = std::byte{kLeafVersion};
    value[1] = static_cast<std::byte>(rng.below(20));
    seal(value);
    ASSERT_NO_FATAL_FAILURE(expect_refused_or_canonical(value));
  }
}

}  // namespace
}  // namespace sarsen
