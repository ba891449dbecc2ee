#include "dataplane/store/overlay.h"

#include <gtest/gtest.h>

namespace sarsen {
namespace {

const ObjectKey kObject{.pool = PoolId(1), .family = 1, .branch = 1, .object_number = 1};

PendingBlock pending(std::uint64_t sequence, PendingKind kind = PendingKind::journal,
                     bool reserved = false) {
  return {.sequence = LaneSequence(sequence),
          .location = BlockIndex(1000 + sequence),
          .kind = kind,
          .reserved = reserved};
}

// I-STORE-2: recovery meets records of two runs in any order.
TEST(Overlay, keeps_the_highest_sequence_whatever_the_order) {
  Overlay overlay;
  OverlayDrop drop;
  overlay.put(kObject, 3, pending(7), drop);
  overlay.put(kObject, 3, pending(5), drop);
  EXPECT_EQ(overlay.find(kObject, 3)->sequence, LaneSequence(7));
  overlay.put(kObject, 3, pending(9), drop);
  EXPECT_EQ(overlay.find(kObject, 3)->sequence, LaneSequence(9));
  EXPECT_FALSE(overlay.find(kObject, 4));
  EXPECT_EQ(overlay.block_count(), 1u);
}

// The extents of a large write that was overwritten before it was destaged must come back.
TEST(Overlay, gives_back_extents_that_nothing_names_any_more) {
  Overlay overlay;
  OverlayDrop drop;
  overlay.put(kObject, 0, pending(1, PendingKind::extent), drop);
  overlay.put(kObject, 0, pending(2), drop);
  ASSERT_EQ(drop.superseded.size(), 1u);
  EXPECT_EQ(drop.superseded[0].first, LaneSequence(1));
  EXPECT_EQ(drop.superseded[0].second, BlockIndex(1001));
}

// Each block promises at most one home: a second reservation for it is returned at once.
TEST(Overlay, holds_one_reservation_for_a_block) {
  Overlay overlay;
  OverlayDrop drop;
  overlay.put(kObject, 0, pending(1, PendingKind::journal, true), drop);
  overlay.put(kObject, 0, pending(2, PendingKind::journal, true), drop);
  EXPECT_EQ(drop.reservations, 1u);
  overlay.put(kObject, 0, pending(3, PendingKind::zero), drop);
  EXPECT_EQ(drop.reservations, 1u);
  overlay.destaged(kObject, 0, LaneSequence(3), drop);
  EXPECT_EQ(drop.reservations, 2u);
  EXPECT_TRUE(overlay.empty());
}

// While one version is destaged a newer one arrives: it must stay; the reservation went to the
// home.
TEST(Overlay, a_destaged_version_leaves_a_newer_one_alone) {
  Overlay overlay;
  OverlayDrop drop;
  overlay.put(kObject, 0, pending(1, PendingKind::journal, true), drop);
  EXPECT_TRUE(overlay.take_reservation(kObject, 0));
  overlay.put(kObject, 0, pending(2), drop);
  overlay.destaged(kObject, 0, LaneSequence(1), drop);
  EXPECT_EQ(overlay.find(kObject, 0)->sequence, LaneSequence(2));
  EXPECT_FALSE(overlay.find(kObject, 0)->reserved);
  EXPECT_EQ(drop.reservations, 0u);
}

// A removed object reads as zeros, except for what was written after the removal.
TEST(Overlay, removal_hides_older_blocks_only) {
  Overlay overlay;
  OverlayDrop drop;
  overlay.put(kObject, 0, pending(1), drop);
  overlay.put(kObject, 1, pending(3), drop);
  overlay.remove_object(kObject, LaneSequence(2), drop);
  EXPECT_EQ(overlay.find(kObject, 0)->kind, PendingKind::zero);
  EXPECT_EQ(overlay.find(kObject, 1)->sequence, LaneSequence(3));
  EXPECT_EQ(overlay.find(kObject, 900)->kind, PendingKind::zero);
  overlay.put(kObject, 2, pending(1), drop);
  EXPECT_EQ(overlay.find(kObject, 2)->kind, PendingKind::zero);
  overlay.removal_destaged(kObject, LaneSequence(2));
  EXPECT_FALSE(overlay.find(kObject, 0));
  EXPECT_TRUE(overlay.find(kObject, 1));
}

}  // namespace
}  // namespace sarsen
