#include "dataplane/store/metadata/metadata_rebuild.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/store/metadata/db_fixture.h"

namespace sarsen::test {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr auto kIndex = MetadataFamily::index;
using Readable = std::map<std::string, std::string>;  // key and round, without their padding

struct MetadataRebuild : ::testing::Test {
  // A database with an old file of 300 keys and a newer one of 30, the fourth block of the old one
  // bad.
  void SetUp() override {
    ASSERT_TRUE(DeviceTable::format(disk, geometry));
    auto options = small_options();
    options.create = true;
    auto process = DbProcess::start(disk, geometry, options);
    ASSERT_TRUE(process);
    write(*process->db, 0, 300, 1);
    write(*process->db, 20, 50, 2);
    const TableState state = process->zone.table->state();
    for (const auto& [name, file] : state.files) {
      if (!file.mirrored && file.block_count > 20) bad_block = block_offset(geometry, file, 0, 3);
    }
    *process = DbProcess();
    ASSERT_NE(bad_block, 0u);
    disk.rot(bad_block, kBlockBytes);
  }
  static void write(MetadataDb& db, int begin, int end, int round) {
    MetadataBatch batch;
    for (int key = begin; key < end; ++key) {
      batch.put(kIndex, test_key(key), test_value(key, round));
    }
    batch.put(MetadataFamily::meta, "round", std::to_string(round));
    ASSERT_TRUE(db.write(batch));
    ASSERT_TRUE(db.flush());
  }
  // What one of them has and the other has not, or has differently.
  static std::vector<std::string> difference(const Readable& a, const Readable& b) {
    std::vector<std::string> keys;
    for (const auto& [key, round] : a) {
      if (!b.contains(key) || b.at(key) != round) keys.push_back("-" + key);
    }
    for (const auto& [key, round] : b) {
      if (!a.contains(key)) keys.push_back("+" + key);
    }
    return keys;
  }
  static Readable readable(const MetadataDb& db) {
    Readable found;
    for (int key = 0; key < 300; ++key) {
      const auto value = db.get(kIndex, test_key(key));
      if (value && *value) found.emplace(test_key(key).substr(0, 9), (*value)->substr(0, 6));
    }
    return found;
  }
  DbProcess start(MemoryDisk& device) const {
    auto process = DbProcess::start(device, geometry, small_options());
    EXPECT_TRUE(process);
    return process ? *std::move(process) : DbProcess();
  }
  Result<RebuildReport> rebuild(MemoryDisk& device) const {
    auto zone = Zone::open(device, geometry);
    if (!zone) return fail(zone.error());
    return rebuild_metadata_db(*zone->files, small_options());
  }

  TableGeometry geometry = small_geometry();
  MemoryDisk disk{8 * kMiB};
  std::uint64_t bad_block = 0;
};

TEST_F(MetadataRebuild, keeps_all_that_could_be_read_and_names_the_rest) {
  // The damage must shrink to what is really lost, and merging must work again.
  const Readable before = readable(*start(disk).db);
  ASSERT_LT(before.size(), 300u);
  const auto report = rebuild(disk);
  ASSERT_TRUE(report) << report.error().message();
  ASSERT_THAT(report->lost, SizeIs(1));
  auto process = start(disk);
  EXPECT_THAT(difference(before, readable(*process.db)), IsEmpty());
  for (int key = 0; key < 300; ++key) {
    if (before.contains(test_key(key).substr(0, 9))) continue;
    EXPECT_GE(test_key(key), report->lost.front().first);
    EXPECT_LE(test_key(key), report->lost.front().last);
    EXPECT_EQ(process.db->get(kIndex, test_key(key)), std::nullopt);
  }
  EXPECT_EQ(process.db->get(MetadataFamily::meta, "round"), "2");
  EXPECT_THAT(*process.db->damaged_ranges(MetadataDb::Look::everything), IsEmpty());
  for (int round = 3; round < 9; ++round) {
    write(*process.db, 0, 50, round);
    ASSERT_TRUE(process.db->compact_step());
  }
  EXPECT_GT(process.db->stats().compactions, 0u);
}

TEST_F(MetadataRebuild, a_healthy_database_comes_out_the_same) {
  // Nothing may be lost by caution.
  disk.rot(bad_block, kBlockBytes);  // flips the same bits back
  const Readable before = readable(*start(disk).db);
  EXPECT_THAT(before, SizeIs(300));
  const auto report = rebuild(disk);
  ASSERT_TRUE(report);
  EXPECT_THAT(report->lost, IsEmpty());
  EXPECT_EQ(report->entries, 301u);
  EXPECT_THAT(difference(before, readable(*start(disk).db)), IsEmpty());
}

TEST_F(MetadataRebuild, power_loss_leaves_the_old_or_the_new_database) {
  // A repair that can make things worse is none.
  const Readable before = readable(*start(disk).db);
  disk.record();
  ASSERT_TRUE(rebuild(disk));
  Rng rng(2);
  for (std::size_t count = 0; count <= disk.events().size(); ++count) {
    const PowerLoss loss = kPowerLosses[count % kPowerLosses.size()];
    MemoryDisk after(
        image_after_power_loss(disk.recorded_start(), disk.events(), count, loss, rng));
    auto process = start(after);
    ASSERT_TRUE(process.db) << count;
    EXPECT_THAT(difference(before, readable(*process.db)), IsEmpty()) << count;
    EXPECT_THAT(process.zone.files->list("db.new/"), IsEmpty());
    const auto checked = process.zone.table->state().check();
    EXPECT_TRUE(checked) << checked.error().message();
  }
}

}  // namespace
}  // namespace sarsen::test
