#include "dataplane/store/metadata/metadata_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dataplane/store/metadata/metadata_error.h"
#include "tests/unit/store/metadata/zone_fixture.h"

namespace sarsen::test {
namespace {

using ::testing::ElementsAre;

struct MetadataFilesTest : ::testing::Test {
  void SetUp() override {
    ASSERT_TRUE(DeviceTable::format(disk, geometry));
    restart();
  }
  void restart() {
    zone = Zone();
    auto opened = Zone::open(disk, geometry);
    ASSERT_TRUE(opened) << opened.error().message();
    zone = *std::move(opened);
  }
  MetadataFiles& files() { return *zone.files; }
  void store(const std::string& name, std::string_view contents, bool mirrored = false) {
    auto writer = files().create(name, mirrored);
    ASSERT_TRUE(writer->append(bytes_of(contents)));
    ASSERT_TRUE(writer->sync());
  }
  std::string contents(const std::string& name) {
    const auto reader = files().read(name);
    if (!reader) return reader.error().message();
    std::string text((*reader)->length_bytes(), '\0');
    const auto read = (*reader)->read(0, std::as_writable_bytes(std::span(text)));
    return read ? text : read.error().message();
  }
  std::string pattern(std::size_t size) const {
    std::string text(size, '\0');
    for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 31 + i / 251);
    return text;
  }

  TableGeometry geometry = small_geometry();
  MemoryDisk disk{8 * kMiB};
  Zone zone;
};

TEST_F(MetadataFilesTest, gives_back_what_was_synced_at_any_offset) {
  // RocksDB reads pieces of any size; blocks, units and chunks must not show.
  const std::string text = pattern(700'001);
  store("f", text);
  restart();
  const auto reader = files().read("f");
  ASSERT_TRUE(reader);
  Rng rng(1);
  for (int i = 0; i < 300; ++i) {
    const std::size_t offset = rng.below(text.size() + 10);
    std::string piece(rng.below(20'000), '\0');
    const auto read = (*reader)->read(offset, std::as_writable_bytes(std::span(piece)));
    ASSERT_TRUE(read);
    piece.resize(*read);
    EXPECT_EQ(piece, offset < text.size() ? text.substr(offset, piece.size()) : "");
  }
}

TEST_F(MetadataFilesTest, a_mirrored_file_grows_sync_by_sync) {
  // MANIFEST: a few bytes, a sync, a few bytes more; no synced block is written again.
  std::string expected;
  auto writer = files().create("m", true);
  for (int i = 0; i < 40; ++i) {
    const std::string piece = pattern(static_cast<std::size_t>(i * 331 % 5000));
    ASSERT_TRUE(writer->append(bytes_of(piece)));
    ASSERT_TRUE(writer->sync());
    expected += piece;
  }
  EXPECT_EQ(contents("m"), expected);
  writer.reset();
  restart();
  EXPECT_EQ(contents("m"), expected);
}

TEST_F(MetadataFilesTest, a_single_copy_file_is_not_appended_to_after_a_sync_in_mid_block) {
  // It would mean writing a durable block again, and a torn write would take what was synced.
  auto writer = files().create("f", false);
  ASSERT_TRUE(writer->append(bytes_of(pattern(100))));
  ASSERT_TRUE(writer->sync());
  EXPECT_TRUE(is(writer->append(bytes_of("x")).error(), MetadataError::bad_request));
}

TEST_F(MetadataFilesTest, what_was_not_synced_is_not_there) {
  // The table says how long a file is, nobody else.
  {
    auto writer = files().create("f", false);
    ASSERT_TRUE(writer->append(bytes_of(pattern(50'000))));
  }
  restart();
  EXPECT_TRUE(files().list("").empty());
  EXPECT_TRUE(is(files().read("f").error(), MetadataError::not_found));
}

TEST_F(MetadataFilesTest, names_are_removed_renamed_and_replaced) {
  // What RocksDB does with CURRENT.
  store("db/a", "one", true);
  store("db/b", "two", true);
  store("db/c", "three");
  store("other", "four");
  ASSERT_TRUE(files().rename("db/a", "db/b"));
  ASSERT_TRUE(files().remove("db/c"));
  EXPECT_THAT(files().list("db/"), ElementsAre("b"));
  EXPECT_TRUE(is(files().rename("db/a", "x").error(), MetadataError::not_found));
  EXPECT_TRUE(is(files().remove("db/a").error(), MetadataError::not_found));
  store("other", "five");
  restart();
  EXPECT_EQ(contents("db/b"), "one");
  EXPECT_EQ(contents("other"), "five");
  EXPECT_THAT(files().list(""), ElementsAre("db/b", "other"));
}

TEST_F(MetadataFilesTest, space_of_a_removed_file_waits_for_its_record_and_its_readers) {
  // Reused too early, the old file would show the new file's blocks.
  store("f", pattern(100'000));
  const auto free_before = files().stats().free_bytes;
  auto reader = files().read("f");
  ASSERT_TRUE(reader);
  ASSERT_TRUE(files().remove("f"));
  EXPECT_EQ(files().stats().free_bytes, free_before) << "no record dropped it yet";
  store("g", "x");
  EXPECT_LT(files().stats().free_bytes, free_before) << "somebody reads it";
  std::string text(1000, '\0');
  EXPECT_TRUE((*reader)->read(50'000, std::as_writable_bytes(std::span(text))));
  EXPECT_EQ(text, pattern(100'000).substr(50'000, 1000));
  reader->reset();
  EXPECT_GT(files().stats().free_bytes, free_before);
}

TEST_F(MetadataFilesTest, a_stale_block_is_not_taken_for_the_file_that_replaced_it) {
  // A device that loses an acknowledged write leaves a block of an older file, with a good
  // checksum.
  store("f", pattern(40'000));
  const TableFile old = zone.table->state().files.at("f");
  AlignedBuffer lost(kBlockBytes);
  ASSERT_TRUE(disk.read(ByteOffset(block_offset(geometry, old, 0, 3)), lost.span()));
  ASSERT_TRUE(files().remove("f"));
  store("flush the removal", "x", true);
  store("g", pattern(40'000));
  const TableFile now = zone.table->state().files.at("g");
  ASSERT_EQ(block_offset(geometry, now, 0, 3), block_offset(geometry, old, 0, 3));
  ASSERT_TRUE(disk.write(ByteOffset(block_offset(geometry, now, 0, 3)), lost.span()));
  const auto reader = files().read("g");
  ASSERT_TRUE(reader);
  std::string text(40'000, '\0');
  const auto read = (*reader)->read(0, std::as_writable_bytes(std::span(text)));
  ASSERT_FALSE(read);
  EXPECT_TRUE(is(read.error(), MetadataError::corrupt));
  EXPECT_THAT(files().damage(), ElementsAre(DamagedBlock{"g", 3}));
  ASSERT_TRUE(files().remove("g"));
  EXPECT_TRUE(files().damage().empty());
}

TEST_F(MetadataFilesTest, a_mirrored_block_that_is_bad_twice_is_corrupt) {
  // Two faults: say so, do not invent contents.
  store("m", pattern(9000), true);
  const TableFile file = zone.table->state().files.at("m");
  for (std::size_t copy = 0; copy < 2; ++copy) {
    disk.rot(block_offset(geometry, file, copy, 1), kBlockBytes);
  }
  EXPECT_TRUE(is(files().read("m").error(), MetadataError::corrupt));
}

TEST_F(MetadataFilesTest, an_unreadable_mirrored_block_heals) {
  // EIO is a bad copy like any other.
  store("m", pattern(9000), true);
  const TableFile file = zone.table->state().files.at("m");
  disk.make_unreadable(block_offset(geometry, file, 0, 1), kBlockBytes);
  disk.make_unreadable(block_offset(geometry, file, 1, 0), kBlockBytes);
  EXPECT_EQ(contents("m"), pattern(9000));
  EXPECT_EQ(files().stats().blocks_healed, 2u);
  EXPECT_EQ(contents("m"), pattern(9000));
  EXPECT_EQ(files().stats().blocks_healed, 2u);
}

TEST_F(MetadataFilesTest, a_device_that_is_gone_says_nothing_about_a_mirrored_file) {
  // Unplugged at the wrong moment, a device was given up as corrupt in both copies.
  store("m", pattern(9000), true);
  disk.set_gone(true);
  EXPECT_TRUE(is(files().read("m").error(), RuntimeError::device_gone));
  EXPECT_TRUE(files().damage().empty());
  disk.set_gone(false);
  EXPECT_EQ(contents("m"), pattern(9000));
}

TEST_F(MetadataFilesTest, chunks_come_and_go_with_need) {
  // Space that the index does not need belongs to the lanes.
  store("f", pattern(1'500'000));
  EXPECT_GE(zone.table->stats().chunks_metadata, 6u);
  ASSERT_TRUE(files().remove("f"));
  ASSERT_TRUE(files().trim());
  EXPECT_LE(zone.table->stats().chunks_metadata, 2u);
  restart();
  ASSERT_TRUE(files().reserve(1 * kMiB));
  EXPECT_GE(files().stats().free_bytes, 1 * kMiB);
  EXPECT_TRUE(is(files().reserve(20 * kMiB).error(), MetadataError::no_space));
}

TEST_F(MetadataFilesTest, a_writer_that_failed_stays_failed) {
  // A hole in a file must not be followed by more of it.
  auto writer = files().create("f", false);
  disk.fail_changes_after(0);
  ASSERT_TRUE(writer->append(bytes_of("x")));
  EXPECT_FALSE(writer->sync());
  disk.fail_changes_after(1000);
  EXPECT_FALSE(writer->append(bytes_of("y")));
  EXPECT_FALSE(writer->sync());
}

}  // namespace
}  // namespace sarsen::test
