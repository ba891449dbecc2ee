#include <cstring>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dataplane/base/crc32c.h"
#include "dataplane/base/rng.h"
#include "dataplane/store/error.h"
#include "dataplane/store/journal_format.h"
#include "dataplane/store/superblock.h"

namespace sarsen {
namespace {

Uuid uuid_of(std::uint8_t fill) {
  Uuid uuid;
  for (std::size_t i = 0; i < uuid.size(); ++i) uuid[i] = static_cast<std::byte>(fill + i);
  return uuid;
}

Superblock sample_superblock() {
  Superblock superblock;
  superblock.device = uuid_of(0x10);
  superblock.cluster = uuid_of(0x40);
  superblock.osd_id = 7;
  superblock.sequence = 3;
  superblock.start_count = 2;
  superblock.formatted_wall_time_ns = 1'700'000'000'000'000'000;
  superblock.journal_salt = 0x0123456789abcdef;
  superblock.geometry = *choose_geometry(10 * kGiB, {});
  return superblock;
}

std::vector<std::byte> encoded(const Superblock& superblock, std::uint32_t copy) {
  std::vector<std::byte> block(kBlockBytes);
  encode_superblock(superblock, copy, block);
  return block;
}

JournalRecord sample_write(std::uint64_t sequence, std::uint32_t blocks) {
  JournalRecord record;
  record.kind = RecordKind::write;
  record.lane = LaneId(3);
  record.lane_sequence = LaneSequence(sequence);
  record.object = {.pool = PoolId(1), .family = 2, .branch = 3, .object_number = 4};
  record.first_block = 5;
  record.block_count = blocks;
  record.stamp = {.pg_epoch = PgEpoch(6),
                  .pg_sequence = PgSequence(7),
                  .holder = 8,
                  .attach_epoch = 9,
                  .session = 10,
                  .operation_id = 11,
                  .first_unacknowledged = 12,
                  .snapshot_generation = 13,
                  .change_generation = 14};
  for (std::uint32_t i = 0; i < blocks; ++i) record.checksums.push_back(100 + i);
  return record;
}

GroupHeader sample_header() {
  GroupHeader header;
  header.device = uuid_of(0x10);
  header.generation = SegmentGeneration((2ull << 40) | 5);
  header.run = 2;
  header.stream = 0;
  header.segment = 4;
  header.group_index = 1;
  header.position = 9;
  header.first_lsn = JournalLsn(20);
  header.durable_upto = JournalLsn(20);
  header.header_blocks = 1;
  header.payload_blocks = 2;
  header.previous_generation = SegmentGeneration((2ull << 40) | 4);
  header.previous_group_count = 12;
  header.previous_checksum = 0xfeedface;
  header.segment_first_lsn = JournalLsn(15);
  header.previous_segment_first_lsn = JournalLsn(3);
  return header;
}

constexpr std::uint32_t kGoldenSuperblock = 0xf6b9c7c6;
constexpr std::uint32_t kGoldenGroup = 0x8341f829;
constexpr std::uint64_t kSalt = 0x0123456789abcdef;

// A store that one version wrote must be read by every later one: the bytes may not change.
TEST(SuperblockFormat, has_the_golden_bytes_of_version_1) {
  const auto block = encoded(sample_superblock(), 2);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(block.data()), 8), "SARSENSB");
  EXPECT_EQ(crc32c(std::span(block).first(kBlockBytes - 4)), kGoldenSuperblock);
}

TEST(SuperblockFormat, decodes_what_it_encoded) {
  const Superblock superblock = sample_superblock();
  for (std::uint32_t copy = 0; copy < kSuperblockCopies; ++copy) {
    const auto decoded = decode_superblock(copy, encoded(superblock, copy));
    ASSERT_TRUE(decoded) << decoded.error().message();
    EXPECT_EQ(*decoded, superblock);
  }
}

// A copy that landed in another copy's place must not count twice towards the quorum.
TEST(SuperblockFormat, refuses_a_copy_in_another_copys_place) {
  const auto decoded = decode_superblock(1, encoded(sample_superblock(), 0));
  ASSERT_FALSE(decoded);
  EXPECT_TRUE(is(decoded.error(), StoreError::corrupt_block));
}

TEST(SuperblockFormat, finds_every_flipped_bit) {
  auto block = encoded(sample_superblock(), 0);
  for (std::size_t byte = 0; byte < block.size(); byte += 7) {
    block[byte] ^= std::byte{0x10};
    EXPECT_FALSE(decode_superblock(0, block)) << "byte " << byte;
    block[byte] ^= std::byte{0x10};
  }
}

// A newer format must be refused with words, not read as garbage.
TEST(SuperblockFormat, refuses_features_that_it_does_not_know) {
  Superblock superblock = sample_superblock();
  superblock.features_incompatible = 1ull << 40;
  const auto decoded = decode_superblock(0, encoded(superblock, 0));
  ASSERT_FALSE(decoded);
  EXPECT_TRUE(is(decoded.error(), StoreError::format_unsupported));
}

TEST(Geometry, parts_do_not_overlap_and_fit_the_device) {
  for (const std::uint64_t size : {64 * kMiB, 1 * kGiB, 10 * kGiB, 3 * kTiB + 4096, 64 * kTiB}) {
    const auto geometry = choose_geometry(size, {});
    ASSERT_TRUE(geometry) << size << ": " << geometry.error().message();
    EXPECT_LE(geometry->chunks_start().value + geometry->chunk_count * geometry->chunk_bytes,
              geometry->table_region(0, 1).value);
    EXPECT_EQ(geometry->table_region(1, 1).value + geometry->table_region_bytes,
              geometry->superblocks()[2].value);
    EXPECT_GE(geometry->segment(0).value,
              geometry->table_region(1, 0).value + geometry->table_region_bytes);
  }
}

TEST(Geometry, says_how_small_is_too_small) {
  const auto geometry = choose_geometry(1 * kMiB, {});
  ASSERT_FALSE(geometry);
  EXPECT_TRUE(is(geometry.error(), StoreError::device_too_small));
  EXPECT_THAT(geometry.error().message(), testing::HasSubstr("67108864"));
}

// Geometry comes from the media: sizes that wrap 64 bits must be refused, not multiplied.
TEST(Geometry, refuses_sizes_that_would_wrap) {
  StoreGeometry geometry = *choose_geometry(10 * kGiB, {});
  geometry.chunk_bytes = 1ull << 40;
  geometry.chunk_count = ~0u;
  EXPECT_FALSE(validate_geometry(geometry));
  geometry = *choose_geometry(10 * kGiB, {});
  geometry.table_region_bytes = ~std::uint64_t{0} - 4095;
  EXPECT_FALSE(validate_geometry(geometry));
}

TEST(JournalFormat, decodes_what_it_encoded) {
  JournalRecord extents = sample_write(21, 3);
  extents.kind = RecordKind::write_extents;
  extents.runs = {{.start = BlockIndex(1000), .blocks = 2}, {.start = BlockIndex(5), .blocks = 1}};
  JournalRecord share = sample_write(22, 0);
  share.kind = RecordKind::share_object;
  share.source = ObjectKey{.pool = PoolId(9), .family = 8, .branch = 7, .object_number = 6};
  JournalRecord ends = sample_write(23, 0);
  ends.kind = RecordKind::stream_ends;
  ends.ends = {{.run = 1, .stream = 0, .end = JournalLsn(99)}};
  const std::vector<JournalRecord> records{sample_write(20, 2), extents, share};
  const std::vector<JournalRecord> echo{sample_write(19, 1), ends};

  std::uint32_t bytes = 0;
  for (const auto& record : records) bytes += encoded_record_bytes(record);
  std::uint32_t echo_bytes = 0;
  for (const auto& record : echo) echo_bytes += encoded_record_bytes(record);
  GroupHeader header = sample_header();
  header.header_blocks = group_header_blocks(bytes, echo_bytes);
  std::vector<std::byte> part(std::size_t{header.header_blocks} * kBlockBytes);
  const auto checksum = encode_group(header, records, echo, kSalt, part);

  const auto group = decode_group(part, kSalt, header.device, header.segment, header.position);
  ASSERT_TRUE(group) << group.error().message();
  EXPECT_EQ(group->header, header);
  EXPECT_EQ(group->records, records);
  EXPECT_EQ(group->echo, echo);
  EXPECT_EQ(group->checksum, checksum);
}

TEST(JournalFormat, has_the_golden_bytes_of_version_1) {
  const GroupHeader header = sample_header();
  const std::vector<JournalRecord> records{sample_write(20, 2)};
  const std::vector<JournalRecord> echo{sample_write(19, 1)};
  std::vector<std::byte> part(kBlockBytes);
  encode_group(header, records, echo, kSalt, part);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(part.data()), 4), "SGRP");
  EXPECT_EQ(crc32c(part), kGoldenGroup);
}

// I-JOURNAL-1: a group that landed elsewhere, or is of another device, is not a group.
TEST(JournalFormat, refuses_a_group_that_is_not_at_its_place) {
  const GroupHeader header = sample_header();
  std::vector<std::byte> part(kBlockBytes);
  encode_group(header, {}, {}, kSalt, part);
  EXPECT_TRUE(decode_group(part, kSalt, header.device, header.segment, header.position));
  EXPECT_FALSE(decode_group(part, kSalt, header.device, header.segment, header.position + 1));
  EXPECT_FALSE(decode_group(part, kSalt, header.device, header.segment + 1, header.position));
  EXPECT_FALSE(decode_group(part, kSalt, uuid_of(0x11), header.segment, header.position));
}

// A guest may write any bytes: without the salt of the device they never pass for a header.
TEST(JournalFormat, refuses_a_header_made_without_the_salt) {
  const GroupHeader header = sample_header();
  std::vector<std::byte> part(kBlockBytes);
  encode_group(header, {}, {}, kSalt, part);
  EXPECT_FALSE(decode_group(part, kSalt + 1, header.device, header.segment, header.position));
}

// Whatever is on the media, decoding answers; it never reads beyond the part.
TEST(JournalFormat, survives_any_damage_with_a_valid_checksum_of_its_own) {
  const GroupHeader header = sample_header();
  const std::vector<JournalRecord> records{sample_write(20, 2)};
  Rng rng(1);
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::byte> part(kBlockBytes);
    encode_group(header, records, records, kSalt, part);
    for (int flips = 0; flips < 3; ++flips) {
      part[72 + rng.below(600)] = static_cast<std::byte>(rng.next());
    }
    const std::uint32_t seed = crc32c(std::as_bytes(std::span(&kSalt, 1)));
    const std::uint32_t checksum = crc32c(std::span<const std::byte>(part).subspan(8), seed);
    std::memcpy(part.data() + 4, &checksum, 4);
    const auto group = decode_group(part, kSalt, header.device, header.segment, header.position);
    if (!group) EXPECT_TRUE(is(group.error(), StoreError::corrupt_journal));
  }
}

}  // namespace
}  // namespace sarsen
