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

}  // namespace
}  // namespace sarsen
