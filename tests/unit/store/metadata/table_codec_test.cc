#include "dataplane/store/metadata/table_codec.h"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dataplane/base/crc32c.h"
#include "dataplane/base/rng.h"
#include "dataplane/store/metadata/file_blocks.h"
#include "dataplane/store/metadata/metadata_error.h"

namespace sarsen::test {
namespace {

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0) text += i % 16 == 0 ? '\n' : ' ';
    const auto byte = std::to_integer<unsigned>(bytes[i]);
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

// The worked example of dataplane/docs/on_disk_format/device_table.md.
std::array<std::byte, 16> example_uuid() {
  std::array<std::byte, 16> uuid{};
  for (std::size_t i = 0; i < uuid.size(); ++i) uuid[i] = static_cast<std::byte>(i);
  return uuid;
}
TableFile example_file() {
  return {.serial = 5,
          .length_bytes = 16,
          .block_count = 1,
          .mirrored = true,
          .copies = {{{{16, 1}}, {{31, 1}}}}};
}
TableState example_state() {
  TableState state;
  state.chunk_bytes = 256 * kKiB;
  state.unit_bytes = 16 * kKiB;
  state.next_serial = 6;
  state.owners = {ChunkOwner::lane(LaneId(0)), ChunkOwner::metadata(), ChunkOwner::free()};
  state.files.emplace("db/CURRENT", example_file());
  return state;
}
std::vector<TableChange> example_changes() {
  return {SetOwner{ChunkIndex(2), ChunkOwner::free(), ChunkOwner::lane(LaneId(7))},
          RenameFile{"db/CURRENT", "db/OLD"}, RemoveFile{"db/OLD"},
          PutFile{"db/CURRENT", example_file()}};
}

TEST(TableCodec, snapshot_has_the_bytes_of_the_worked_example) {
  // Devices written today must open for ever.
  const AlignedBuffer record = encode_record({.device_hash = device_hash(example_uuid()),
                                              .generation = 3,
                                              .index = 0,
                                              .kind = TableRecordKind::snapshot},
                                             encode_snapshot(example_state()));
  EXPECT_EQ(record.size(), kBlockBytes);
  EXPECT_EQ(hex(record.span(0, 166)),
            "53 44 54 31 e4 4e bc 70 75 17 85 77 94 dc 84 7c\n"
            "03 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00\n"
            "66 00 00 00 01 01 00 00 00 00 00 00 00 00 00 00\n"
            "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00\n"
            "00 00 04 00 00 00 00 00 03 00 00 00 00 40 00 00\n"
            "06 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00\n"
            "01 00 00 00 ff ff ff ff 00 00 00 00 05 00 00 00\n"
            "00 00 00 00 10 00 00 00 00 00 00 00 01 00 00 00\n"
            "0a 00 01 00 01 00 00 00 01 00 00 00 64 62 2f 43\n"
            "55 52 52 45 4e 54 10 00 00 00 01 00 00 00 1f 00\n"
            "00 00 01 00 00 00");
}

TEST(TableCodec, changes_have_the_bytes_of_the_worked_example) {
  // Each kind of change once.
  const AlignedBuffer record = encode_record({.device_hash = device_hash(example_uuid()),
                                              .generation = 3,
                                              .index = 1,
                                              .kind = TableRecordKind::changes},
                                             encode_changes(example_changes()));
  EXPECT_EQ(hex(record.span(0, 64 + 8 + 13 + 21 + 9 + 59)),
            "53 44 54 31 6e c2 0f af 75 17 85 77 94 dc 84 7c\n"
            "03 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00\n"
            "6e 00 00 00 02 01 00 00 00 00 00 00 00 00 00 00\n"
            "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00\n"
            "04 00 00 00 00 00 00 00 01 02 00 00 00 00 00 00\n"
            "00 08 00 00 00 04 0a 00 64 62 2f 43 55 52 52 45\n"
            "4e 54 06 00 64 62 2f 4f 4c 44 03 06 00 64 62 2f\n"
            "4f 4c 44 02 05 00 00 00 00 00 00 00 10 00 00 00\n"
            "00 00 00 00 01 00 00 00 0a 00 01 00 01 00 00 00\n"
            "01 00 00 00 64 62 2f 43 55 52 52 45 4e 54 10 00\n"
            "00 00 01 00 00 00 1f 00 00 00 01 00 00 00");
}

TEST(TableCodec, a_file_block_has_the_bytes_of_the_worked_example) {
  // CURRENT of the example: 16 bytes of contents.
  AlignedBuffer block(kBlockBytes);
  const std::string_view contents = "MANIFEST-000001\n";
  std::memcpy(block.data() + sizeof(FileBlockHeader), contents.data(), contents.size());
  seal_file_block(block.span(), crc32c(example_uuid()), 5, 0,
                  static_cast<std::uint16_t>(contents.size()));
  EXPECT_EQ(hex(block.span(0, 40)),
            "f3 20 93 7d 10 00 01 00 05 00 00 00 00 00 00 00\n"
            "00 00 00 00 00 00 00 00 4d 41 4e 49 46 45 53 54\n"
            "2d 30 30 30 30 30 31 0a");
}

TEST(TableCodec, what_is_written_is_read_back) {
  // Encoder and decoder agree on every field.
  EXPECT_EQ(decode_snapshot(encode_snapshot(example_state())), example_state());
  EXPECT_EQ(decode_changes(encode_changes(example_changes())), example_changes());
}

TEST(TableCodec, every_flipped_bit_of_a_record_is_noticed) {
  // Rot must never be taken for a change of owner.
  const std::uint64_t device = device_hash(example_uuid());
  const AlignedBuffer record = encode_record(
      {.device_hash = device, .generation = 3, .index = 1, .kind = TableRecordKind::changes},
      encode_changes(example_changes()));
  ASSERT_TRUE(parse_record(record.span(), device));
  for (std::size_t bit = 0; bit < 8 * record.size(); ++bit) {
    record.data()[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_FALSE(parse_record(record.span(), device)) << "bit " << bit;
    record.data()[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
  }
}

TEST(TableCodec, every_flipped_bit_of_a_file_block_is_noticed) {
  // The same for the blocks of table files.
  AlignedBuffer block(kBlockBytes);
  seal_file_block(block.span(), 77, 5, 2, 1000);
  ASSERT_TRUE(open_file_block(block.span(), 77, 5, 2));
  for (std::size_t bit = 0; bit < 8 * block.size(); ++bit) {
    block.data()[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_FALSE(open_file_block(block.span(), 77, 5, 2)) << "bit " << bit;
    block.data()[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
  }
}

TEST(TableCodec, a_block_passes_only_for_itself) {
  // Misdirected, lost and stale writes leave a good block in the wrong place.
  AlignedBuffer block(kBlockBytes);
  seal_file_block(block.span(), 77, 5, 2, 1000);
  EXPECT_FALSE(open_file_block(block.span(), 78, 5, 2)) << "another device";
  EXPECT_FALSE(open_file_block(block.span(), 77, 4, 2)) << "another file";
  EXPECT_FALSE(open_file_block(block.span(), 77, 5, 3)) << "another place";
}

TEST(TableCodec, payloads_of_any_bytes_are_refused_or_read_but_never_trusted) {
  // A checksum can be right by chance or by malice; lengths in a payload are not to be believed.
  Rng rng(9);
  const std::vector<std::byte> snapshot = encode_snapshot(example_state());
  const std::vector<std::byte> changes = encode_changes(example_changes());
  for (int i = 0; i < 20'000; ++i) {
    std::vector<std::byte> spoilt = i % 2 == 0 ? snapshot : changes;
    for (std::uint64_t flips = rng.between(1, 4); flips > 0; --flips) {
      spoilt[rng.below(spoilt.size())] =
          static_cast<std::byte>(rng.chance(0.3) ? 0xff : rng.next());
    }
    spoilt.resize(rng.chance(0.2) ? rng.below(spoilt.size()) : spoilt.size());
    if (auto state = decode_snapshot(spoilt); state && state->owners.size() < 100) {
      if (state->units_per_chunk() < 1000) (void)state->check();
    }
    if (auto decoded = decode_changes(spoilt)) {
      TableState state = example_state();
      for (const TableChange& change : *decoded) {
        if (!state.apply(change)) break;
      }
      (void)state.check();
    }
  }
}

TEST(TableState, refuses_what_contradicts_it) {
  // Two owners of one unit are two files that overwrite each other.
  const std::vector<std::pair<const char*, std::function<void(TableState&)>>> spoils{
      {"a unit twice", [](TableState& s) { s.files["db/CURRENT"].copies[1] = {{16, 1}}; }},
      {"a unit outside the zone",
       [](TableState& s) { s.files["db/CURRENT"].copies[0] = {{0, 1}}; }},
      {"a unit nowhere", [](TableState& s) { s.files["db/CURRENT"].copies[0] = {{48, 1}}; }},
      {"an empty extent", [](TableState& s) { s.files["db/CURRENT"].copies[0] = {{16, 0}}; }},
      {"too few units", [](TableState& s) { s.files["db/CURRENT"].block_count = 5; }},
      {"too long", [](TableState& s) { s.files["db/CURRENT"].length_bytes = 4073; }},
      {"a copy too many", [](TableState& s) { s.files["db/CURRENT"].mirrored = false; }},
      {"a serial never given", [](TableState& s) { s.files["db/CURRENT"].serial = 6; }},
  };
  EXPECT_TRUE(example_state().check());
  for (const auto& [what, spoil] : spoils) {
    TableState state = example_state();
    spoil(state);
    const auto checked = state.check();
    ASSERT_FALSE(checked) << what;
    EXPECT_TRUE(is(checked.error(), MetadataError::corrupt)) << what;
  }
  TableState state = example_state();
  EXPECT_FALSE(state.apply(SetOwner{ChunkIndex(0), ChunkOwner::free(), ChunkOwner::metadata()}));
  EXPECT_FALSE(state.apply(SetOwner{ChunkIndex(3), ChunkOwner::free(), ChunkOwner::metadata()}));
  EXPECT_FALSE(state.apply(RemoveFile{"db/NONE"}));
  EXPECT_FALSE(state.apply(RenameFile{"db/NONE", "db/CURRENT"}));
  EXPECT_FALSE(state.apply(PutFile{"", example_file()}));
  EXPECT_EQ(state, example_state());
}

}  // namespace
}  // namespace sarsen::test
