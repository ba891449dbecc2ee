#include "dataplane/store/metadata/device_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dataplane/store/metadata/metadata_error.h"
#include "tests/unit/store/metadata/zone_fixture.h"

namespace sarsen::test {
namespace {

using ::testing::HasSubstr;

const ChunkOwner kLaneZero = ChunkOwner::lane(LaneId(0));
const ChunkOwner kLaneSeven = ChunkOwner::lane(LaneId(7));

// One letter per chunk.
std::string text(const std::vector<ChunkOwner>& owners) {
  std::string letters;
  for (const ChunkOwner& owner : owners) {
    letters += owner.is_free()       ? '.'
               : owner.is_metadata() ? 'M'
                                     : static_cast<char>('0' + owner.lane_id().value);
  }
  return letters;
}

struct DeviceTableTest : ::testing::Test {
  TableGeometry geometry = small_geometry();
  MemoryDisk disk{8 * kMiB};

  void SetUp() override { ASSERT_TRUE(DeviceTable::format(disk, geometry)); }
  std::unique_ptr<DeviceTable> open() {
    auto table = DeviceTable::open(disk, geometry);
    EXPECT_TRUE(table) << (table ? "" : table.error().message());
    return table ? *std::move(table) : nullptr;
  }
  std::uint64_t mirror(std::size_t region, std::size_t copy) const {
    return geometry.regions[region][copy].value;
  }
};

TEST_F(DeviceTableTest, remembers_who_owns_each_chunk) {
  // The owner of a chunk is all that stands between two lanes writing over each other.
  {
    auto table = open();
    EXPECT_EQ(table->grant_chunk(kLaneZero), ChunkIndex(0));
    EXPECT_EQ(table->grant_chunk(kLaneSeven), ChunkIndex(1));
    EXPECT_EQ(table->grant_chunk(ChunkOwner::metadata()), ChunkIndex(2));
    EXPECT_TRUE(table->return_chunk(ChunkIndex(0), kLaneZero));
  }
  const auto owners = open()->owners();
  EXPECT_TRUE(owners[0].is_free());
  EXPECT_EQ(owners[1].lane_id(), LaneId(7));
  EXPECT_TRUE(owners[2].is_metadata());
  EXPECT_EQ(owners.size(), geometry.chunk_count);
}

TEST_F(DeviceTableTest, keeps_the_reserve_for_the_metadata_zone) {
  // Without it a full device could not compact, and then not even delete.
  auto table = open();
  std::uint32_t granted = 0;
  Result<ChunkIndex> grant = ChunkIndex(0);
  while ((grant = table->grant_chunk(kLaneZero))) ++granted;
  EXPECT_TRUE(is(grant.error(), MetadataError::no_space));
  EXPECT_EQ(granted, geometry.chunk_count - geometry.metadata_reserve_chunks);
  for (std::uint32_t i = 0; i < geometry.metadata_reserve_chunks; ++i) {
    EXPECT_TRUE(table->grant_chunk(ChunkOwner::metadata()));
  }
  EXPECT_TRUE(is(table->grant_chunk(ChunkOwner::metadata()).error(), MetadataError::no_space));
}

TEST_F(DeviceTableTest, takes_a_chunk_back_only_from_its_owner) {
  // A lane that returns another's chunk has a bug; the table must not spread it.
  auto table = open();
  ASSERT_TRUE(table->grant_chunk(kLaneZero));
  for (const auto& [chunk, owner] :
       {std::pair(ChunkIndex(0), kLaneSeven), std::pair(ChunkIndex(1), kLaneZero),
        std::pair(ChunkIndex(1), ChunkOwner::free()),
        std::pair(ChunkIndex(geometry.chunk_count), kLaneZero)}) {
    EXPECT_TRUE(is(table->return_chunk(chunk, owner).error(), MetadataError::bad_request));
  }
}

TEST_F(DeviceTableTest, goes_on_in_the_other_region_when_one_is_full) {
  // 32 KiB hold 7 records: this wraps many times.
  for (int round = 0; round < 5; ++round) {
    auto table = open();
    for (int i = 0; i < 9; ++i) {
      ASSERT_TRUE(table->grant_chunk(kLaneZero));
      ASSERT_TRUE(table->return_chunk(ChunkIndex(0), kLaneZero));
    }
    ASSERT_TRUE(table->grant_chunk(kLaneSeven));
    ASSERT_TRUE(table->return_chunk(ChunkIndex(0), kLaneSeven));
    EXPECT_GT(table->stats().snapshots_written, 0u);
  }
  EXPECT_GT(open()->stats().generation, 10u);
}

TEST_F(DeviceTableTest, heals_one_rotten_mirror_wherever_it_is) {
  // Any single copy may rot; the other one must carry the table and restore it.
  {
    auto table = open();
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(table->grant_chunk(kLaneSeven));
  }
  const DiskImage healthy = disk.image();
  const std::string owners = text(open()->owners());
  for (std::size_t copy = 0; copy < 2; ++copy) {
    for (std::uint64_t offset = 0; offset < 6 * kBlockBytes; offset += kBlockBytes) {
      disk.rot(mirror(0, copy) + offset, kBlockBytes);
      auto table = open();
      ASSERT_TRUE(table);
      EXPECT_EQ(text(table->owners()), owners);
      EXPECT_EQ(table->stats().repairs, 1u);
      EXPECT_TRUE(disk.image() == healthy) << "copy " << copy << " offset " << offset;
    }
  }
}

TEST_F(DeviceTableTest, heals_one_unreadable_mirror_wherever_it_is) {
  // A latent sector error is a bad copy like any other.
  {
    auto table = open();
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(table->grant_chunk(kLaneSeven));
  }
  const std::string owners = text(open()->owners());
  for (std::size_t region = 0; region < 2; ++region) {
    for (std::size_t copy = 0; copy < 2; ++copy) {
      for (std::uint64_t offset = 0; offset < geometry.region_bytes; offset += kBlockBytes) {
        disk.make_unreadable(mirror(region, copy) + offset, kBlockBytes);
        auto table = open();
        ASSERT_TRUE(table);
        EXPECT_EQ(text(table->owners()), owners);
      }
    }
  }
}

TEST_F(DeviceTableTest, says_corrupt_when_a_record_in_the_middle_is_bad_in_both_mirrors) {
  // Taking the bad record for the end would give acknowledged chunks to somebody else.
  {
    auto table = open();
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(table->grant_chunk(kLaneSeven));
  }
  for (std::size_t copy = 0; copy < 2; ++copy) disk.rot(mirror(0, copy) + 2 * kBlockBytes, 4096);
  const auto table = DeviceTable::open(disk, geometry);
  ASSERT_FALSE(table);
  EXPECT_TRUE(is(table.error(), MetadataError::corrupt));
  EXPECT_THAT(table.error().message(), HasSubstr("record 2"));
}

TEST_F(DeviceTableTest, says_corrupt_when_the_newest_snapshot_is_bad_in_both_mirrors) {
  // The older region still looks whole; going back to it would forget acknowledged changes.
  {
    auto table = open();
    while (table->stats().generation == 1) ASSERT_TRUE(table->grant_chunk(kLaneSeven));
  }
  for (std::size_t copy = 0; copy < 2; ++copy) disk.rot(mirror(1, copy), kBlockBytes);
  const auto table = DeviceTable::open(disk, geometry);
  ASSERT_FALSE(table);
  EXPECT_TRUE(is(table.error(), MetadataError::corrupt));
}

TEST_F(DeviceTableTest, cuts_a_torn_last_record) {
  // Nobody was told of it; it must neither count nor stop the opening.
  ASSERT_TRUE(open()->grant_chunk(kLaneSeven));
  for (std::size_t copy = 0; copy < 2; ++copy) disk.rot(mirror(0, copy) + kBlockBytes, kBlockBytes);
  auto table = open();
  ASSERT_TRUE(table);
  EXPECT_TRUE(table->owners()[0].is_free());
  EXPECT_EQ(table->grant_chunk(kLaneZero), ChunkIndex(0));
  EXPECT_EQ(open()->owners()[0], kLaneZero);
}

TEST_F(DeviceTableTest, does_not_take_unreadable_for_absent) {
  // Both mirrors cannot be read where a record may be: that is an error, not an end.
  ASSERT_TRUE(open()->grant_chunk(kLaneSeven));
  for (std::size_t copy = 0; copy < 2; ++copy) {
    disk.make_unreadable(mirror(0, copy) + kBlockBytes, kBlockBytes);
  }
  const auto table = DeviceTable::open(disk, geometry);
  ASSERT_FALSE(table);
  EXPECT_TRUE(is(table.error(), RuntimeError::io_error));
}

TEST_F(DeviceTableTest, does_not_take_a_device_that_is_gone_for_an_empty_one) {
  // "No valid snapshot" would call for a new format.
  ASSERT_TRUE(open()->grant_chunk(kLaneSeven));
  disk.set_gone(true);
  EXPECT_TRUE(is(DeviceTable::open(disk, geometry).error(), RuntimeError::device_gone));
  disk.set_gone(false);
  EXPECT_EQ(open()->owners()[0], kLaneSeven);
}

TEST_F(DeviceTableTest, leaves_a_region_that_cannot_be_written) {
  // One bad block in a region is no reason to lose the device.
  auto table = open();
  ASSERT_TRUE(table->grant_chunk(kLaneSeven));
  disk.make_unwritable(mirror(0, 1) + 2 * kBlockBytes, kBlockBytes);
  EXPECT_EQ(table->grant_chunk(kLaneZero), ChunkIndex(1));
  EXPECT_EQ(table->stats().generation, 2u);
  EXPECT_EQ(open()->owners()[1], kLaneZero);
}

TEST_F(DeviceTableTest, stays_failed_after_a_failed_flush) {
  // What a failed flush left is unknown: going on would acknowledge on sand.
  auto table = open();
  disk.fail_changes_after(2);  // both mirrors are written, the flush fails
  EXPECT_TRUE(is(table->grant_chunk(kLaneSeven).error(), RuntimeError::io_error));
  disk.fail_changes_after(1000);
  EXPECT_TRUE(is(table->grant_chunk(kLaneSeven).error(), RuntimeError::io_error));
  EXPECT_TRUE(table->owners()[0].is_free());
  EXPECT_TRUE(open()->grant_chunk(kLaneSeven));
}

TEST_F(DeviceTableTest, answers_every_failed_write_or_flush_with_an_error) {
  // A device that dies at any moment must not take the process with it, nor what was acknowledged.
  const DiskImage start = disk.image();
  for (std::uint64_t count = 0; count < 40; ++count) {
    MemoryDisk dying(start);
    std::vector<ChunkIndex> acknowledged;
    if (auto table = DeviceTable::open(dying, geometry)) {
      dying.fail_changes_after(count);
      while (auto chunk = (*table)->grant_chunk(kLaneSeven)) acknowledged.push_back(*chunk);
    }
    MemoryDisk revived(dying.image());
    auto table = DeviceTable::open(revived, geometry);
    ASSERT_TRUE(table) << count << ": " << table.error().message();
    for (const ChunkIndex chunk : acknowledged) {
      EXPECT_EQ((*table)->owners()[chunk.value], kLaneSeven) << count;
    }
  }
}

TEST_F(DeviceTableTest, does_not_open_a_table_of_another_device) {
  // A disk that was swapped or cloned must not be written by somebody else's roots.
  geometry.device_uuid[3] = std::byte{1};
  const auto table = DeviceTable::open(disk, geometry);
  ASSERT_FALSE(table);
  EXPECT_TRUE(is(table.error(), MetadataError::not_found));
}

TEST_F(DeviceTableTest, refuses_geometry_that_overlaps_or_does_not_fit) {
  // Every field comes from a superblock that may be wrong.
  const std::vector<std::function<void(TableGeometry&)>> spoils{
      [](TableGeometry& g) { g.unit_bytes = 1000; },
      [](TableGeometry& g) { g.unit_bytes = 0; },
      [](TableGeometry& g) { g.chunk_bytes = 0; },
      [](TableGeometry& g) { g.chunk_bytes += kBlockBytes; },
      [](TableGeometry& g) { g.chunk_count = 0; },
      [](TableGeometry& g) { g.chunk_count += 1; },
      [](TableGeometry& g) { g.chunk_count = 0xffffffff; },
      [](TableGeometry& g) { g.region_bytes = 8192; },
      [](TableGeometry& g) { g.regions[0][1] = g.regions[1][0]; },
      [](TableGeometry& g) { g.regions[0][1] = ByteOffset(g.chunk_area.value + 4096); },
      [](TableGeometry& g) { g.chunk_area.value += 512; },
  };
  for (std::size_t i = 0; i < spoils.size(); ++i) {
    TableGeometry spoilt = geometry;
    spoils[i](spoilt);
    EXPECT_TRUE(is(DeviceTable::open(disk, spoilt).error(), MetadataError::bad_geometry)) << i;
  }
  TableGeometry other = geometry;
  other.chunk_bytes = 512 * kKiB;
  other.chunk_count /= 2;
  EXPECT_TRUE(is(DeviceTable::open(disk, other).error(), MetadataError::bad_geometry));
}

TEST_F(DeviceTableTest, grows_with_its_device_but_never_shrinks) {
  // Chunks beyond the end of the device may hold data.
  TableGeometry smaller = geometry;
  smaller.chunk_count -= 1;
  EXPECT_TRUE(is(DeviceTable::open(disk, smaller).error(), MetadataError::bad_geometry));
  ASSERT_TRUE(DeviceTable::format(disk, smaller));
  auto table = DeviceTable::open(disk, geometry);
  ASSERT_TRUE(table);
  EXPECT_EQ((*table)->owners().size(), geometry.chunk_count);
}

TEST_F(DeviceTableTest, says_where_a_chunk_is) {
  // Lanes address the device by this.
  const auto table = open();
  EXPECT_EQ(table->chunk_offset(ChunkIndex(0)), geometry.chunk_area);
  EXPECT_EQ(table->chunk_offset(ChunkIndex(3)),
            ByteOffset(geometry.chunk_area.value + 3 * geometry.chunk_bytes));
  EXPECT_TRUE(is(table->chunk_offset(ChunkIndex(geometry.chunk_count)).error(),
                 MetadataError::bad_request));
}

TEST_F(DeviceTableTest,
       every_crash_leaves_what_was_acknowledged_and_a_second_crash_changes_nothing) {
  // The table is the root of everything; each of its I/Os is a place where power may go.
  disk.record();
  std::vector<std::pair<std::size_t, std::string>> acknowledged;
  {
    auto table = open();
    const auto note = [&] {
      acknowledged.emplace_back(disk.events().size(), text(table->owners()));
    };
    for (int i = 0; i < 8; ++i) {
      ASSERT_TRUE(table->grant_chunk(i % 2 == 0 ? kLaneZero : kLaneSeven));
      note();
      if (i % 3 == 2) {
        ASSERT_TRUE(table->return_chunk(ChunkIndex(static_cast<std::uint32_t>(i) - 2),
                                        table->owners()[static_cast<std::size_t>(i) - 2]));
        note();
      }
    }
    EXPECT_GE(table->stats().snapshots_written, 1u);
  }
  Rng rng(1);
  int states = 0;
  for (std::size_t count = 0; count <= disk.events().size(); ++count) {
    for (const PowerLoss loss : kPowerLosses) {
      MemoryDisk after(
          image_after_power_loss(disk.recorded_start(), disk.events(), count, loss, rng));
      after.record();
      auto table = DeviceTable::open(after, geometry);
      ASSERT_TRUE(table) << count << ": " << table.error().message();
      const std::string owners = text((*table)->owners());
      // Old or new: the last acknowledged state, or the one that was being written.
      std::vector<std::string> allowed{std::string(geometry.chunk_count, '.')};
      for (const auto& [at, state] : acknowledged) {
        if (at < count) {
          allowed = {state};
        } else {
          allowed.push_back(state);
          break;
        }
      }
      EXPECT_THAT(allowed, ::testing::Contains(owners)) << "after event " << count;
      ++states;
      for (std::size_t again = 0; again <= after.events().size(); ++again) {
        for (const PowerLoss second : kPowerLosses) {
          MemoryDisk later(
              image_after_power_loss(after.recorded_start(), after.events(), again, second, rng));
          auto reopened = DeviceTable::open(later, geometry);
          ASSERT_TRUE(reopened) << count << "/" << again << ": " << reopened.error().message();
          EXPECT_EQ(text((*reopened)->owners()), owners);
          ++states;
        }
      }
    }
  }
  RecordProperty("crash_states", states);
}

TEST_F(DeviceTableTest, what_an_opening_reported_survives_power_loss) {
  // Only the process died: its last record may still be in the device's cache. Whoever opens the
  // table acts on that record, so it must not vanish afterwards.
  const DiskImage start = disk.image();
  for (std::uint64_t count = 0; count < 30; ++count) {
    MemoryDisk cached(start);
    cached.record();
    {
      auto table = DeviceTable::open(cached, geometry);
      ASSERT_TRUE(table);
      cached.fail_changes_after(count);
      while ((*table)->grant_chunk(kLaneSeven)) {
      }
    }
    cached.fail_changes_after(1000);
    auto table = DeviceTable::open(cached, geometry);
    ASSERT_TRUE(table);
    const std::string reported = text((*table)->owners());
    const AlignedBuffer later(kBlockBytes);
    ASSERT_TRUE(cached.write(geometry.chunk_area, later.span()));
    Rng rng(count);
    MemoryDisk after(image_after_power_loss(cached.recorded_start(), cached.events(),
                                            cached.events().size(), PowerLoss::keeps_nothing, rng));
    auto reopened = DeviceTable::open(after, geometry);
    ASSERT_TRUE(reopened);
    EXPECT_EQ(text((*reopened)->owners()), reported) << count;
  }
}

}  // namespace
}  // namespace sarsen::test
