#include "dataplane/store/metadata/metadata_db.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dataplane/base/rng.h"
#include "dataplane/store/metadata/metadata_file_system.h"
#include "tests/unit/store/metadata/db_fixture.h"

namespace sarsen::test {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr auto kIndex = MetadataFamily::index;
constexpr auto kAllocator = MetadataFamily::allocator;
constexpr auto kMeta = MetadataFamily::meta;

struct MetadataDbTest : ::testing::Test {
  DbProcess start(MetadataDbOptions options = small_options()) {
    auto process = DbProcess::start(disk, geometry, std::move(options));
    EXPECT_TRUE(process) << (process ? "" : process.error().message());
    return process ? *std::move(process) : DbProcess();
  }
  void SetUp() override {
    ASSERT_TRUE(DeviceTable::format(disk, geometry));
    auto options = small_options();
    options.create = true;
    start(options);
  }
  static Result<void> put(MetadataDb& db, MetadataFamily family, std::string_view key,
                          std::string_view value) {
    MetadataBatch batch;
    batch.put(family, key, value);
    return db.write(batch);
  }
  // Several level 0 files of many blocks each, flushed.
  static void fill(MetadataDb& db, int rounds, int keys) {
    for (int round = 0; round < rounds; ++round) {
      MetadataBatch batch;
      for (int key = 0; key < keys; ++key) {
        batch.put(kIndex, test_key(key), test_value(key, round));
      }
      const auto written = db.write(batch);
      ASSERT_TRUE(written) << written.error().message();
      const auto flushed = db.flush();
      ASSERT_TRUE(flushed) << flushed.error().message();
    }
  }

  TableGeometry geometry = small_geometry();
  MemoryDisk disk{8 * kMiB};
};

// I-META-6. RocksDB deletes its manifest as an old one when a new one was made and CURRENT could
// not be made to name that: the next opening would find nothing.
TEST_F(MetadataDbTest, keeps_the_manifest_that_current_names_whoever_deletes_it) {
  std::string manifest;
  {
    DbProcess process = start();
    ASSERT_TRUE(put(*process.db, kIndex, "key", "value"));
    ASSERT_TRUE(process.db->flush());
    process.db.reset();
    for (const std::string& name : process.zone.files->list("db/")) {
      if (name.starts_with("MANIFEST-")) manifest = "db/" + name;
    }
    const auto file_system = make_metadata_file_system(*process.zone.files);
    EXPECT_TRUE(file_system->DeleteFile(manifest, {}, nullptr).ok());
    // Removals become durable with the next change.
    ASSERT_TRUE(process.zone.files->create("db/other", true)->sync());
    EXPECT_TRUE(process.zone.files->length(manifest));
  }
  DbProcess process = start();
  ASSERT_TRUE(process.db);
  EXPECT_TRUE(process.db->get(kIndex, "key"));
  EXPECT_FALSE(process.zone.files->length(manifest)) << "an old one is removed by an opening";
}

TEST_F(MetadataDbTest, keeps_what_was_flushed_and_only_that) {
  // Unflushed writes live in the store's journal; the database must not pretend.
  {
    auto process = start();
    ASSERT_TRUE(put(*process.db, kIndex, "a", "1"));
    ASSERT_TRUE(put(*process.db, kAllocator, "b", "2"));
    ASSERT_TRUE(put(*process.db, kMeta, "c", "3"));
    ASSERT_TRUE(process.db->flush());
    ASSERT_TRUE(put(*process.db, kIndex, "a", "lost"));
    EXPECT_EQ(process.db->get(kIndex, "a"), "lost");
  }
  auto process = start();
  EXPECT_EQ(process.db->get(kIndex, "a"), "1");
  EXPECT_EQ(process.db->get(kAllocator, "b"), "2");
  EXPECT_EQ(process.db->get(kMeta, "c"), "3");
  EXPECT_EQ(process.db->get(kIndex, "c"), std::nullopt);
}

TEST_F(MetadataDbTest, reads_many_keys_at_once) {
  // A destage run looks up the leaves of a whole object in one call.
  auto process = start();
  ASSERT_TRUE(put(*process.db, kIndex, "a", "1"));
  ASSERT_TRUE(put(*process.db, kIndex, "c", "3"));
  const std::array<std::string_view, 3> keys{"c", "b", "a"};
  const auto values = process.db->multi_get(kIndex, keys);
  ASSERT_THAT(values, SizeIs(3));
  EXPECT_EQ(values[0], "3");
  EXPECT_EQ(values[1], std::nullopt);
  EXPECT_EQ(values[2], "1");
}

TEST_F(MetadataDbTest, walks_a_prefix_over_one_state) {
  // A PG is a prefix; a split walks it while writes go on.
  auto process = start();
  for (const char* key : {"p", "p\x01", "p\xff", "p\xff\xff", "q", "o"}) {
    ASSERT_TRUE(put(*process.db, kIndex, key, "old"));
  }
  auto cursor = process.db->prefix_cursor(kIndex, "p");
  ASSERT_TRUE(put(*process.db, kIndex, "p\x02", "new"));
  std::vector<std::string> keys;
  for (; cursor.valid(); cursor.next()) keys.emplace_back(cursor.key());
  EXPECT_TRUE(cursor.status());
  EXPECT_THAT(keys, ElementsAre("p", "p\x01", "p\xff", "p\xff\xff"));
  auto highest = process.db->prefix_cursor(kIndex, "\xff");
  EXPECT_FALSE(highest.valid());
}

TEST_F(MetadataDbTest, removes_a_range) {
  // Dropping a PG must not cost one operation per leaf.
  {
    auto process = start();
    fill(*process.db, 1, 100);
    MetadataBatch batch;
    batch.remove_range(kIndex, test_key(10), test_key(90));
    batch.remove(kIndex, test_key(5));
    ASSERT_TRUE(process.db->write(batch));
    ASSERT_TRUE(process.db->flush());
    while (process.db->compact_step()->worked) {
    }
  }
  auto process = start();
  int count = 0;
  for (auto cursor = process.db->cursor(kIndex, "", ""); cursor.valid(); cursor.next()) ++count;
  EXPECT_EQ(count, 19);
  EXPECT_EQ(process.db->get(kIndex, test_key(10)), std::nullopt);
  EXPECT_EQ(process.db->get(kIndex, test_key(90)), test_value(90, 0));
}

TEST_F(MetadataDbTest, merging_bounds_files_and_space) {
  // Overwriting for ever must not fill the zone nor slow lookups down.
  auto process = start();
  Rng rng(3);
  for (int round = 0; round < 60; ++round) {
    MetadataBatch batch;
    for (int i = 0; i < 40; ++i) {
      const int key = static_cast<int>(rng.below(200));
      batch.put(kIndex, test_key(key), test_value(key, round));
    }
    ASSERT_TRUE(process.db->write(batch));
    ASSERT_TRUE(process.db->flush());
    for (;;) {
      const auto step = process.db->compact_step();
      ASSERT_TRUE(step) << step.error().message();
      if (!step->worked) break;
    }
    EXPECT_LT(process.db->stats().level0_files, small_options().compaction.level0_files_max);
  }
  EXPECT_GT(process.db->stats().compactions, 10u);
  EXPECT_LE(process.zone.table->stats().chunks_metadata, 6u);
  EXPECT_TRUE(process.zone.table->state().check());
}

TEST_F(MetadataDbTest, flushes_by_itself_before_memory_runs_out) {
  // The bound on memory is a promise.
  auto options = small_options();
  options.unflushed_bytes_max = 16 * kKiB;
  auto process = start(options);
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(put(*process.db, kIndex, test_key(i), test_value(i, 0)));
    EXPECT_LE(process.db->stats().unflushed_bytes, 16 * kKiB);
  }
  EXPECT_GT(process.db->stats().flushes, 3u);
}

TEST_F(MetadataDbTest, answers_no_space_and_goes_on_when_there_is_some) {
  // Full is a value: nothing is half done, reads go on, and freeing a chunk is enough.
  auto process = start();
  while (process.zone.table->grant_chunk(ChunkOwner::metadata())) {
  }
  int round = 0;
  Result<void> flushed;
  while (flushed && round < 10'000) {
    MetadataBatch batch;
    for (int key = 0; key < 100; ++key) batch.put(kIndex, test_key(key), test_value(key, round));
    ASSERT_TRUE(process.db->write(batch));
    flushed = process.db->flush();
    ++round;
  }
  ASSERT_FALSE(flushed);
  EXPECT_TRUE(is(flushed.error(), MetadataError::no_space)) << flushed.error().message();
  EXPECT_EQ(process.db->get(kIndex, test_key(7)), test_value(7, round - 1));
  for (std::uint32_t chunk = geometry.chunk_count - 6; chunk < geometry.chunk_count; ++chunk) {
    ASSERT_TRUE(process.zone.table->return_chunk(ChunkIndex(chunk), ChunkOwner::metadata()));
  }
  EXPECT_TRUE(process.db->flush());
  EXPECT_TRUE(process.db->compact_step());
  EXPECT_EQ(process.db->get(kIndex, test_key(7)), test_value(7, round - 1));
}

TEST_F(MetadataDbTest, a_bad_block_costs_its_keys_and_nothing_else) {
  // One rotten sector must never cost the device: its keys are rebuilt from peers.
  auto process = start();
  fill(*process.db, 1, 400);
  process = DbProcess();
  {
    const auto zone = Zone::open(disk, geometry);
    for (const auto& [name, file] : zone->table->state().files) {
      if (!name.ends_with(".sst") || file.block_count < 20) continue;
      disk.rot(block_offset(geometry, file, 0, 2), kBlockBytes);
    }
  }
  process = start();
  int good = 0;
  std::vector<std::string> bad;
  for (int key = 0; key < 400; ++key) {
    const auto value = process.db->get(kIndex, test_key(key));
    if (value) {
      EXPECT_EQ(*value, test_value(key, 0));
      ++good;
    } else {
      EXPECT_TRUE(is(value.error(), MetadataError::corrupt)) << value.error().message();
      bad.push_back(test_key(key));
    }
  }
  EXPECT_GT(good, 300);
  ASSERT_FALSE(bad.empty());
  const auto ranges = process.db->damaged_ranges(MetadataDb::Look::suspects);
  ASSERT_TRUE(ranges);
  ASSERT_THAT(*ranges, SizeIs(1));
  EXPECT_EQ(ranges->front().family, kIndex);
  EXPECT_LE(ranges->front().first, bad.front());
  EXPECT_GE(ranges->front().last, bad.back());
  EXPECT_LE(ranges->front().last, test_key(60));
  // Writing goes on, also after a merge that met the bad block.
  ASSERT_TRUE(put(*process.db, kIndex, bad.front(), "rebuilt"));
  ASSERT_TRUE(process.db->flush());
  fill(*process.db, 4, 10);
  const auto step = process.db->compact_step();
  ASSERT_FALSE(step);
  EXPECT_TRUE(is(step.error(), MetadataError::corrupt)) << step.error().message();
  ASSERT_TRUE(put(*process.db, kIndex, "z", "1"));
  EXPECT_TRUE(process.db->flush());
  EXPECT_EQ(process.db->get(kIndex, "z"), "1");
}

TEST_F(MetadataDbTest, an_unreadable_block_is_damage_like_a_bad_one) {
  // A latent sector error says EIO; what must happen is the same.
  {
    auto process = start();
    fill(*process.db, 1, 400);
  }
  {
    const auto zone = Zone::open(disk, geometry);
    for (const auto& [name, file] : zone->table->state().files) {
      if (!name.ends_with(".sst") || file.block_count < 20) continue;
      disk.make_unreadable(block_offset(geometry, file, 0, 2), kBlockBytes);
    }
  }
  auto process = start();
  int bad = 0;
  for (int key = 0; key < 400; ++key) {
    const auto value = process.db->get(kIndex, test_key(key));
    if (value) continue;
    EXPECT_TRUE(is(value.error(), MetadataError::corrupt)) << value.error().message();
    ++bad;
  }
  EXPECT_GT(bad, 0);
  EXPECT_LT(bad, 60);
  EXPECT_THAT(*process.db->damaged_ranges(MetadataDb::Look::everything), SizeIs(1));
}

TEST_F(MetadataDbTest, any_bad_block_of_a_table_file_leaves_the_rest) {
  // Also the index, the filter and the footer: then the whole file is damage, but never the device.
  {
    auto process = start();
    fill(*process.db, 1, 100);
    ASSERT_TRUE(put(*process.db, kMeta, "m", "1"));
    ASSERT_TRUE(process.db->flush());
  }
  const DiskImage healthy = disk.image();
  const TableState state = Zone::open(disk, geometry)->table->state();
  for (const auto& [name, file] : state.files) {
    if (file.mirrored || file.block_count < 8) continue;
    for (std::uint32_t block = 0; block < file.block_count; ++block) {
      MemoryDisk spoilt(healthy);
      spoilt.rot(block_offset(geometry, file, 0, block), kBlockBytes);
      auto process = DbProcess::start(spoilt, geometry, small_options());
      ASSERT_TRUE(process) << name << " " << block << ": " << process.error().message();
      EXPECT_EQ(process->db->get(kMeta, "m"), "1");
      const auto ranges = process->db->damaged_ranges(MetadataDb::Look::everything);
      ASSERT_TRUE(ranges);
      EXPECT_THAT(*ranges, SizeIs(1)) << name << " " << block;
      for (int key = 0; key < 100; ++key) {
        const auto value = process->db->get(kIndex, test_key(key));
        if (value) {
          EXPECT_EQ(*value, test_value(key, 0));
        } else {
          ASSERT_FALSE(ranges->empty());
          EXPECT_GE(test_key(key), ranges->front().first);
          EXPECT_LE(test_key(key), ranges->front().last);
        }
      }
    }
  }
}

TEST_F(MetadataDbTest, every_mirrored_block_heals) {
  // MANIFEST and CURRENT are the way into the database: one bad copy of any block must not matter.
  {
    auto process = start();
    fill(*process.db, 3, 30);
  }
  const DiskImage healthy = disk.image();
  const TableState state = Zone::open(disk, geometry)->table->state();
  int healed = 0;
  for (const auto& [name, file] : state.files) {
    if (!file.mirrored || file.block_count == 0) continue;
    for (std::size_t copy = 0; copy < 2; ++copy) {
      for (std::uint32_t block = 0; block < file.block_count; ++block) {
        MemoryDisk spoilt(healthy);
        spoilt.rot(block_offset(geometry, file, copy, block), kBlockBytes);
        auto process = DbProcess::start(spoilt, geometry, small_options());
        ASSERT_TRUE(process) << name << ": " << process.error().message();
        EXPECT_EQ(process->db->get(kIndex, test_key(3)), test_value(3, 2));
        healed += process->zone.files->stats().blocks_healed > 0;
      }
    }
  }
  EXPECT_GE(healed, 6);
}

TEST_F(MetadataDbTest, refuses_to_open_what_is_not_there) {
  // A device whose database is gone must not come back as an empty one.
  ASSERT_TRUE(DeviceTable::format(disk, geometry));
  const auto process = DbProcess::start(disk, geometry, small_options());
  ASSERT_FALSE(process);
  EXPECT_TRUE(is(process.error(), MetadataError::not_found)) << process.error().message();
}

TEST_F(MetadataDbTest, answers_every_failed_write_or_flush_with_an_error) {
  // A device that dies at any moment must not take the process with it, and what a flush()
  // acknowledged is there when the device comes back.
  {
    auto process = start();
    fill(*process.db, 2, 20);
  }
  const DiskImage before = disk.image();
  bool finished = false;
  for (std::uint64_t count = 0; !finished; ++count) {
    ASSERT_LT(count, 2000u);
    MemoryDisk dying(before);
    int acknowledged = 1;
    {
      auto process = DbProcess::start(dying, geometry, small_options());
      ASSERT_TRUE(process);
      dying.fail_changes_after(count);
      finished = true;
      for (int round = 2; round < 7; ++round) {
        MetadataBatch batch;
        for (int key = 0; key < 20; ++key) batch.put(kIndex, test_key(key), test_value(key, round));
        if (process->db->write(batch) && process->db->flush()) {
          acknowledged = round;
        } else {
          finished = false;
        }
        if (!process->db->compact_step()) finished = false;
        // Reading goes on whatever fails.
        EXPECT_TRUE(process->db->get(kIndex, test_key(1)));
      }
    }
    MemoryDisk revived(dying.image());
    auto process = DbProcess::start(revived, geometry, small_options());
    ASSERT_TRUE(process) << count << ": " << process.error().message();
    const auto value = process->db->get(kIndex, test_key(1));
    ASSERT_TRUE(value);
    EXPECT_GE(**value, test_value(1, acknowledged)) << count;
  }
}

TEST_F(MetadataDbTest, closes_while_the_device_is_gone) {
  // The simulator takes processes down in the middle of anything.
  auto process = start();
  fill(*process.db, 1, 10);
  ASSERT_TRUE(put(*process.db, kIndex, "a", "1"));
  disk.set_gone(true);
  EXPECT_FALSE(process.db->flush());
  process.db->close();
  EXPECT_TRUE(is(process.db->flush().error(), MetadataError::stopped));
  EXPECT_TRUE(is(process.db->get(kIndex, "a").error(), MetadataError::stopped));
  EXPECT_FALSE(process.db->cursor(kIndex, "", "").valid());
}

TEST_F(MetadataDbTest, two_runs_do_the_same_input_and_output) {
  // A simulated run repeats from its seed only if RocksDB does.
  const auto run = [&](std::uint64_t cache_bytes) {
    MemoryDisk fresh(8 * kMiB);
    EXPECT_TRUE(DeviceTable::format(fresh, geometry));
    fresh.record();
    auto options = small_options();
    options.create = true;
    options.cache_bytes = cache_bytes;
    auto process = DbProcess::start(fresh, geometry, options);
    std::vector<std::tuple<bool, std::uint64_t, std::size_t>> trace;
    EXPECT_TRUE(process) << process.error().message();
    if (!process) return trace;
    for (int round = 0; round < 9; ++round) {
      fill(*process->db, 1, 50);
      for (auto step = process->db->compact_step(); step && step->worked;) {
        step = process->db->compact_step();
        EXPECT_TRUE(step) << step.error().message();
      }
      for (int key = 0; key < 50; key += 7) EXPECT_TRUE(process->db->get(kIndex, test_key(key)));
      trace.emplace_back(false, fresh.bytes_read(), 0);
    }
    for (const DiskEvent& event : fresh.events()) {
      trace.emplace_back(event.flush, event.offset, event.data.size());
    }
    return trace;
  };
  const auto first = run(1 * kMiB);
  EXPECT_GT(first.size(), 100u);
  EXPECT_EQ(first, run(1 * kMiB));
  EXPECT_EQ(run(0), run(0));
}

}  // namespace
}  // namespace sarsen::test
