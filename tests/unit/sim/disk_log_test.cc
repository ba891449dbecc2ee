// The crash explorer is only as good as the images that DiskLog builds.
#include "tests/sim/disk_log.h"

#include <set>

#include <gtest/gtest.h>

#include "tests/sim/run_task.h"
#include "tests/sim/sim_disk.h"

namespace sarsen::sim {
namespace {

constexpr std::uint64_t kDeviceBytes = 16 * kBlockBytes;

std::vector<std::byte> block_of(int value) {
  return std::vector<std::byte>(kBlockBytes, static_cast<std::byte>(value));
}

class DiskLogTest : public testing::Test {
 protected:
  DiskLog log{SparseImage(kDeviceBytes), /*volatile_cache=*/true};

  DiskLogId submit(DiskOperationKind kind, std::uint64_t block, int value) {
    return log.submitted(kind, block * kBlockBytes, block_of(value), kBlockBytes);
  }
  void write(std::uint64_t block, int value, DiskOperationKind kind = DiskOperationKind::write) {
    log.completed(submit(kind, block, value));
  }
  void flush() { log.completed(log.submitted(DiskOperationKind::flush, 0, {}, 0)); }
  int value_of(const SparseImage& image, std::uint64_t block, std::size_t sector = 0) {
    std::array<std::byte, kSectorBytes> bytes;
    image.read(block * kBlockBytes + sector * kSectorBytes, bytes);
    return static_cast<int>(bytes[0]);
  }
  std::vector<SectorFate> all(SectorFate fate) {
    return std::vector<SectorFate>(log.pending_sectors(log.points()).size(), fate);
  }
};

TEST_F(DiskLogTest, pending_sectors_are_those_that_no_flush_covered) {
  write(1, 10);
  EXPECT_EQ(log.pending_sectors(log.points()).size(), 8u);
  EXPECT_EQ(log.pending_sectors(0).size(), 0u);
  flush();
  EXPECT_EQ(log.pending_sectors(log.points()).size(), 0u);
  write(2, 20, DiskOperationKind::write_durable);
  EXPECT_EQ(log.pending_sectors(log.points()).size(), 0u);
  submit(DiskOperationKind::write_durable, 3, 30);  // in flight
  EXPECT_EQ(log.pending_sectors(log.points()).size(), 8u);
}

// The classic mistake of a group commit.
TEST_F(DiskLogTest, a_flush_does_not_cover_what_completed_after_it_began) {
  const DiskLogId early = submit(DiskOperationKind::write, 1, 10);
  const DiskLogId flush_id = log.submitted(DiskOperationKind::flush, 0, {}, 0);
  log.completed(early);
  log.completed(flush_id);
  EXPECT_EQ(log.pending_sectors(log.points()).size(), 8u);
}

TEST_F(DiskLogTest, builds_old_new_and_garbage_per_sector) {
  write(1, 10);
  flush();
  write(1, 11);
  auto fates = all(SectorFate::old_bytes);
  fates[2] = SectorFate::new_bytes;
  fates[5] = SectorFate::garbage;
  const SparseImage image = log.build_image({log.points(), fates});
  EXPECT_EQ(value_of(image, 1, 0), 10);
  EXPECT_EQ(value_of(image, 1, 2), 11);
  EXPECT_NE(value_of(image, 1, 5), 10);
  EXPECT_NE(value_of(image, 1, 5), 11);
}

// Power loss must not bring an older cached write back over a newer durable one.
TEST_F(DiskLogTest, a_durable_write_settles_older_ones_below_it) {
  write(1, 10);
  write(1, 11, DiskOperationKind::write_durable);
  EXPECT_TRUE(log.pending_sectors(log.points()).empty());
  EXPECT_EQ(value_of(log.build_image({log.points(), {}}), 1), 11);
  // At an earlier point the durable one is in flight and both are open.
  EXPECT_EQ(log.pending_sectors(log.points() - 1).size(), 16u);
  flush();  // covers the older one as well, and changes nothing
  EXPECT_EQ(value_of(log.build_image({log.points(), {}}), 1), 11);
}

TEST_F(DiskLogTest, marks_say_what_was_acknowledged_where) {
  write(1, 10);
  log.mark("acknowledged 1");
  ASSERT_EQ(log.entries().size(), 2u);
  EXPECT_EQ(log.entries().back().mark, "acknowledged 1");
  EXPECT_EQ(log.entries().back().submitted, log.points());
}

Task<void> write_some(Disk& disk) {
  const auto one = block_of(1), two = block_of(2), three = block_of(3);
  (void)co_await disk.write(ByteOffset(0), one);
  (void)co_await disk.flush();
  (void)co_await disk.write(ByteOffset(0), two);
  (void)co_await disk.write_durable(ByteOffset(kBlockBytes), three);
}

// The log of a real run: what SimDisk itself leaves after power loss is one of the log's states.
TEST(DiskLogOfSimDisk, covers_what_the_simulated_device_leaves) {
  std::set<std::uint64_t> found;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Simulator simulator({.seed = seed});
    using enum FaultKind;
    for (const FaultKind kind : {d2_reorder, d3_drop_unflushed, d4_torn_write}) {
      simulator.set_rate(kind, 0.5);
    }
    SimDisk& disk = simulator.add_disk({.size_bytes = kDeviceBytes});
    SimNode& node = simulator.add_node({.disks = {&disk}});
    node.start();
    DiskLog log(disk.stable(), disk.info().volatile_cache);
    disk.set_log(&log);
    ASSERT_TRUE(run_task(node, write_some(node.disk())));
    node.crash(CrashKind::power_loss);
    const auto pending = log.pending_sectors(log.points());
    ASSERT_EQ(pending.size(), 8u);
    bool built = false;
    for (std::uint32_t subset = 0; subset < 256; ++subset) {
      std::vector<SectorFate> fates;
      for (int i = 0; i < 8; ++i) {
        fates.push_back((subset >> i & 1) != 0 ? SectorFate::new_bytes : SectorFate::old_bytes);
      }
      built = built ||
              log.build_image({log.points(), fates}).fingerprint() == disk.stable().fingerprint();
    }
    ASSERT_TRUE(built);
    found.insert(disk.stable().fingerprint());
    disk.set_log(nullptr);
  }
  EXPECT_GT(found.size(), 5u);  // the device does not always do the same
}

}  // namespace
}  // namespace sarsen::sim
