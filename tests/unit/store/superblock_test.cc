#include "dataplane/store/error.h"
#include "tests/unit/store/store_fixture.h"

namespace sarsen {
namespace {

class SuperblockTest : public StoreFixture {
 protected:
  Result<SuperblockReading> read() { return run(read_superblock(node.env(), node.disk())); }
  void write() { ASSERT_TRUE(run(write_superblock(node.env(), node.disk(), superblock))); }
  void rot_copy(std::uint32_t copy) {
    disk.rot(superblock.geometry.superblocks()[copy], kBlockBytes);
  }
};

TEST_F(SuperblockTest, an_empty_device_is_not_a_store) {
  const auto reading = read();
  ASSERT_FALSE(reading);
  EXPECT_TRUE(is(reading.error(), StoreError::not_a_store));
}

// Two copies may rot, anywhere, without loss.
TEST_F(SuperblockTest, opens_with_any_two_copies) {
  for (std::uint32_t a = 0; a < kSuperblockCopies; ++a) {
    for (std::uint32_t b = a + 1; b < kSuperblockCopies; ++b) {
      write();
      rot_copy(a);
      rot_copy(b);
      const auto reading = read();
      ASSERT_TRUE(reading) << reading.error().message();
      EXPECT_EQ(reading->superblock, superblock);
      EXPECT_EQ(reading->copies_good, 2u);
      EXPECT_EQ(reading->copies_bad, 2u);
    }
  }
}

// One copy alone might be one that an interrupted update left behind.
TEST_F(SuperblockTest, refuses_a_single_copy) {
  write();
  for (std::uint32_t copy = 1; copy < kSuperblockCopies; ++copy) rot_copy(copy);
  const auto reading = read();
  ASSERT_FALSE(reading);
  EXPECT_TRUE(is(reading.error(), StoreError::superblock_quorum));
}

// Nor is a device that is gone a device without a quorum.
TEST_F(SuperblockTest, a_device_that_is_gone_has_not_lost_its_quorum) {
  write();
  for (std::uint64_t copy = 0; copy < kSuperblockCopies; ++copy) {
    disk.vanish_after(copy);
    const auto reading = read();
    ASSERT_FALSE(reading);
    EXPECT_TRUE(is(reading.error(), RuntimeError::device_gone)) << reading.error().message();
    power_cycle();
  }
  EXPECT_TRUE(read());
}

// I-SUPER-2: whatever the moment of a power failure, the old or the new superblock is there.
TEST_F(SuperblockTest, is_old_or_new_after_power_loss_at_any_write) {
  write();
  const Superblock old = superblock;
  superblock.sequence = 2;
  superblock.start_count = 2;
  for (std::uint64_t failing = 0; failing < 6; ++failing) {
    disk.fail_after(disk.io_count() + failing);
    (void)run(write_superblock(node.env(), node.disk(), superblock));
    power_cycle();
    const auto reading = read();
    ASSERT_TRUE(reading) << reading.error().message();
    EXPECT_TRUE(reading->superblock == old || reading->superblock == superblock);
  }
}

// Power fails during an update and again during the opening that follows: what the first left torn
// must not count on what the second tears.
TEST_F(SuperblockTest, keeps_its_quorum_through_two_torn_updates_in_a_row) {
  const auto update = [this](std::uint64_t io) -> std::uint64_t {
    disk.fail_after(io);
    auto reading = read();
    if (!reading) return 0;  // power is gone before anything was written
    Superblock next = reading->superblock;
    ++next.sequence;
    ++next.start_count;
    if (!run(prove_superblock(node.env(), node.disk(), *reading))) return 0;
    return run(write_superblock(node.env(), node.disk(), next)) ? next.sequence : 0;
  };
  for (const auto kind : {sim::FaultKind::d3_drop_unflushed, sim::FaultKind::d4_torn_write,
                          sim::FaultKind::d5_garbage, sim::FaultKind::d2_reorder}) {
    sim.set_rate(kind, 0.7);
  }
  write();
  std::uint64_t durable = superblock.sequence;
  for (std::uint64_t round = 0; round < 2000; ++round) {
    durable = std::max(durable, update(round % 23));
    power_cycle();
    const auto reading = read();
    ASSERT_TRUE(reading) << "round " << round << ": " << reading.error().message();
    ASSERT_GE(reading->superblock.sequence, durable);
  }
}

}  // namespace
}  // namespace sarsen
