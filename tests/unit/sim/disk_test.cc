// What a SimDisk promises: the contract of Disk, and no more than that.
#include <cstring>

#include <gtest/gtest.h>

#include "tests/sim/run_task.h"
#include "tests/sim/sim_disk.h"

namespace sarsen::sim {
namespace {

using enum FaultKind;

std::vector<std::byte> block_of(int value, std::size_t blocks = 1) {
  return std::vector<std::byte>(blocks * kBlockBytes, static_cast<std::byte>(value));
}

// One node of one shard on one disk, without faults unless a test asks for them.
class SimDiskTest : public testing::Test {
 protected:
  Simulator simulator{{.seed = 3}};
  SimDisk& disk = simulator.add_disk({.size_bytes = 4 * kMiB});
  SimNode& node = simulator.add_node({.disks = {&disk}});

  void SetUp() override { node.start(); }

  static Task<Result<void>> write_blocks(Disk& disk, std::uint64_t block,
                                         std::vector<std::byte> data, bool durable) {
    if (durable) co_return co_await disk.write_durable(ByteOffset(block * kBlockBytes), data);
    co_return co_await disk.write(ByteOffset(block * kBlockBytes), data);
  }
  static Task<Result<std::vector<std::byte>>> read_blocks(Disk& disk, std::uint64_t block,
                                                          std::size_t blocks) {
    std::vector<std::byte> data(blocks * kBlockBytes);
    SARSEN_CO_TRY(co_await disk.read(ByteOffset(block * kBlockBytes), data));
    co_return data;
  }
  static Task<Result<void>> flush_disk(Disk& disk) { co_return co_await disk.flush(); }

  Result<void> write(std::uint64_t block, std::vector<std::byte> data, bool durable = false) {
    return *run_task(node, write_blocks(node.disk(), block, std::move(data), durable));
  }
  Result<void> flush() { return *run_task(node, flush_disk(node.disk())); }
  Result<std::vector<std::byte>> read(std::uint64_t block, std::size_t blocks = 1) {
    return *run_task(node, read_blocks(node.disk(), block, blocks));
  }
  void restart(CrashKind kind) {
    node.crash(kind);
    node.start();
  }
};

// Linux gives no more: a completed write is in the device's cache.
TEST_F(SimDiskTest, loses_unflushed_writes_in_power_loss_but_not_when_the_process_dies) {
  simulator.set_rate(d3_drop_unflushed, 1.0);
  simulator.set_rate(d2_reorder, 1.0);
  bool lost = false;
  for (int round = 1; round <= 50; ++round) {
    ASSERT_TRUE(write(1, block_of(round)));
    restart(CrashKind::process_kill);
    ASSERT_EQ(*read(1), block_of(round));
    restart(CrashKind::power_loss);
    lost = lost || *read(1) != block_of(round);
    ASSERT_EQ(disk.unflushed_bytes(), 0u);
  }
  EXPECT_TRUE(lost);
  EXPECT_GT(simulator.fault_counts()[index_of(d3_drop_unflushed)], 0u);
}

// The promise that everything else is built on.
TEST_F(SimDiskTest, never_loses_what_was_flushed_or_written_durably) {
  for (const FaultKind kind : {d2_reorder, d3_drop_unflushed, d4_torn_write, d5_garbage}) {
    simulator.set_rate(kind, 1.0);
  }
  for (int round = 1; round <= 100; ++round) {
    ASSERT_TRUE(write(1, block_of(round)));
    ASSERT_TRUE(write(7, block_of(round, 3)));
    ASSERT_TRUE(flush());
    // An un-flushed write below a durable one must not come back over it.
    ASSERT_TRUE(write(20, block_of(round + 100)));
    ASSERT_TRUE(write(20, block_of(round), /*durable=*/true));
    restart(CrashKind::power_loss);
    ASSERT_EQ(*read(1), block_of(round));
    ASSERT_EQ(*read(7, 3), block_of(round, 3));
    ASSERT_EQ(*read(20), block_of(round));
  }
}

Task<void> write_after_flush_began(Disk& disk, const std::vector<std::byte>& early,
                                   const std::vector<std::byte>& late, Scope& scope) {
  SARSEN_ASSERT(co_await disk.write(ByteOffset(0), early), "no faults");
  scope.spawn([](Disk& device) -> Task<void> { (void)co_await device.flush(); }(disk));
  SARSEN_ASSERT(co_await disk.write(ByteOffset(kBlockBytes), late), "no faults");
  co_await scope.join();
}

// A group commit that flushes too early is found only if the simulator is this strict.
TEST_F(SimDiskTest, flush_covers_only_writes_that_completed_before_it_began) {
  simulator.set_rate(d3_drop_unflushed, 1.0);
  simulator.set_rate(d2_reorder, 1.0);
  const auto early = block_of(1), late = block_of(2);
  bool late_was_lost = false;
  for (int round = 0; round < 20; ++round) {
    disk.set_image(SparseImage(disk.info().size_bytes));
    {
      Scope scope(node.env().executor);
      ASSERT_TRUE(run_task(node, write_after_flush_began(node.disk(), early, late, scope)));
    }
    restart(CrashKind::power_loss);
    ASSERT_EQ(*read(0), early);
    late_was_lost = late_was_lost || *read(1) != late;
  }
  EXPECT_TRUE(late_was_lost);
}

// A store whose recovery expects whole blocks or none would pass a gentler test.
TEST_F(SimDiskTest, tears_writes_at_sectors_and_leaves_garbage) {
  simulator.set_rate(d3_drop_unflushed, 0.1);
  simulator.set_rate(d2_reorder, 1.0);
  simulator.set_rate(d4_torn_write, 1.0);
  simulator.set_rate(d5_garbage, 0.5);
  bool torn = false, garbage = false;
  for (int round = 0; round < 50; ++round) {
    ASSERT_TRUE(write(1, block_of(1), /*durable=*/true));
    ASSERT_TRUE(write(1, block_of(2)));
    restart(CrashKind::power_loss);
    const auto data = *read(1);
    for (std::size_t sector = 0; sector < 8; ++sector) {
      const std::byte first = data[sector * kSectorBytes];
      torn = torn || first != data[0];
      garbage = garbage || (first != std::byte{1} && first != std::byte{2});
    }
  }
  EXPECT_TRUE(torn);
  EXPECT_TRUE(garbage);
}

// Writes in flight belong to nobody: they land, or not, and the frames that own them may die.
TEST_F(SimDiskTest, decides_the_fate_of_writes_in_flight_before_their_frames_die) {
  simulator.set_rate(d3_drop_unflushed, 0.1);
  simulator.set_rate(d4_torn_write, 0.5);
  for (const CrashKind kind : {CrashKind::process_kill, CrashKind::power_loss}) {
    int landed = 0, nothing = 0, part = 0;
    for (int round = 1; round <= 60; ++round) {
      ASSERT_TRUE(write(0, block_of(100, 2), /*durable=*/true));
      node.scope().spawn([](Disk& device, int value) -> Task<void> {
        const auto data = block_of(value, 2);
        (void)co_await device.write_durable(ByteOffset(0), data);
      }(node.disk(), round));
      restart(kind);
      const auto found = *read(0, 2);
      if (found == block_of(round, 2)) {
        ++landed;
      } else if (found == block_of(100, 2)) {
        ++nothing;
      } else {
        ++part;
      }
    }
    EXPECT_GT(landed, 0);
    EXPECT_GT(nothing, 0);
    EXPECT_GT(part, 0);
  }
}

// A store that goes on after a failed write must meet the next one.
TEST_F(SimDiskTest, fails_all_writes_after_a_failed_one_until_it_is_opened_again) {
  simulator.set_rate(d8_write_error, 1.0);
  EXPECT_FALSE(write(0, block_of(1)));
  simulator.set_rate(d8_write_error, 0);
  EXPECT_FALSE(write(0, block_of(2)));
  EXPECT_FALSE(flush());
  EXPECT_TRUE(read(0));
  restart(CrashKind::process_kill);
  EXPECT_TRUE(write(0, block_of(3)));
}

// After fsyncgate: the flush that follows a failed one says success, and the data is gone all the
// same.
TEST_F(SimDiskTest, a_failed_flush_loses_what_later_flushes_do_not_bring_back) {
  simulator.set_rate(d3_drop_unflushed, 1.0);
  bool lost = false;
  for (int round = 1; round <= 40; ++round) {
    ASSERT_TRUE(write(0, block_of(round)));
    simulator.set_rate(d9_flush_error, 1.0);
    ASSERT_FALSE(flush());
    simulator.set_rate(d9_flush_error, 0);
    ASSERT_TRUE(flush());
    ASSERT_EQ(*read(0), block_of(round));
    restart(CrashKind::power_loss);
    lost = lost || *read(0) != block_of(round);
  }
  EXPECT_TRUE(lost);
}

// RocksDB sees the same device as the shards.
TEST_F(SimDiskTest, serves_blocking_io_from_the_same_image) {
  ASSERT_TRUE(write(3, block_of(9)));
  BlockingDisk& blocking = node.blocking_disk();
  const auto job = [](BlockingPool& pool, BlockingDisk& device) -> Task<Result<void>> {
    co_return co_await pool.run([&device]() -> Result<void> {
      auto data = block_of(0);
      SARSEN_TRY(device.read(ByteOffset(3 * kBlockBytes), data));
      SARSEN_TRY(device.write(ByteOffset(4 * kBlockBytes), data));
      return device.flush();
    });
  };
  const BootTime before = simulator.now();
  ASSERT_TRUE(run_task(node, job(node.env().blocking, blocking))->has_value());
  EXPECT_GT((simulator.now() - before).value, microseconds(100).value);  // I/O takes time
  EXPECT_EQ(*read(4), block_of(9));
  EXPECT_EQ(disk.unflushed_bytes(), 0u);
}

// RocksDB must meet power loss in the middle of its own files.
TEST_F(SimDiskTest, may_lose_power_within_a_blocking_job) {
  simulator.set_rate(p3_power_loss, 1.0);
  std::uint64_t errors = 0;
  const auto job = [](BlockingPool& pool, BlockingDisk& device,
                      std::uint64_t* failed) -> Task<Result<void>> {
    co_return co_await pool.run([&device, failed]() -> Result<void> {
      const auto data = block_of(5);
      for (int i = 0; i < 1000; ++i) {
        if (!device.write(ByteOffset(kBlockBytes), data)) ++*failed;
      }
      return {};
    });
  };
  EXPECT_FALSE(run_task(node, job(node.env().blocking, node.blocking_disk(), &errors)));
  EXPECT_FALSE(node.up());
  EXPECT_GT(errors, 1u);  // after the first, everything fails
}

// Failing the n-th I/O in a loop walks through every error path of a store.
TEST_F(SimDiskTest, fails_from_the_chosen_io_on) {
  disk.fail_after(2);
  EXPECT_TRUE(write(0, block_of(1)));
  EXPECT_TRUE(write(0, block_of(2)));
  EXPECT_FALSE(write(0, block_of(3)));
  EXPECT_FALSE(flush());
  restart(CrashKind::process_kill);
  EXPECT_EQ(*read(0), block_of(2));
}

// A judge may excuse an error only where the ledger says that the disk did it.
TEST_F(SimDiskTest, spoils_only_where_it_may_and_says_so) {
  simulator.set_rate(d12_lost_write, 1.0);
  ASSERT_TRUE(write(1, block_of(1), true));
  EXPECT_EQ(*read(1), block_of(1));  // nobody allowed it
  disk.set_may_spoil(
      [](FaultKind, ByteOffset offset, std::uint64_t) { return offset.value >= 10 * kBlockBytes; });
  ASSERT_TRUE(write(1, block_of(2), true));
  EXPECT_EQ(*read(1), block_of(2));
  ASSERT_TRUE(write(10, block_of(3), true));
  EXPECT_EQ(*read(10), block_of(0));
  EXPECT_TRUE(disk.ledger().spoilt(ByteOffset(10 * kBlockBytes), kBlockBytes));
  EXPECT_FALSE(disk.ledger().spoilt(ByteOffset(11 * kBlockBytes), kBlockBytes));
  simulator.set_rate(d12_lost_write, 0);
  ASSERT_TRUE(write(10, block_of(4), true));
  EXPECT_FALSE(disk.ledger().any_spoilt());
}

}  // namespace
}  // namespace sarsen::sim
