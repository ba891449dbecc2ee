#include "dataplane/store/overlay.h"

#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "dataplane/base/rng.h"

namespace sarsen {
namespace {

const ObjectKey kObject{.pool = PoolId(1), .family = 1, .branch = 1, .object_number = 1};

PendingRun pending(std::uint32_t block, std::uint64_t sequence,
                   PendingKind kind = PendingKind::journal, bool reserved = false) {
  return {.first_block = block,
          .block_count = 1,
          .sequence = LaneSequence(sequence),
          .location = BlockIndex(1000 + sequence),
          .checksums = {},
          .kind = kind,
          .reserved = reserved ? 1U : 0U};
}

// Blocks [first, first + count) of a write whose data is at `location`; the checksum of a block is
// its number and the sequence.
struct LongRun {
  LongRun(std::uint32_t first, std::uint32_t count, std::uint64_t sequence, PendingKind kind,
          std::uint64_t location) {
    for (std::uint32_t i = 0; i < count; ++i) checksums.push_back(checksum(first + i, sequence));
    run = {.first_block = first,
           .block_count = count,
           .sequence = LaneSequence(sequence),
           .location = BlockIndex(location),
           .checksums = checksums,
           .kind = kind,
           .reserved = 0};
  }
  static std::uint32_t checksum(std::uint32_t block, std::uint64_t sequence) {
    return static_cast<std::uint32_t>(block * 1000 + sequence);
  }
  std::vector<std::uint32_t> checksums;
  PendingRun run;
};

std::optional<PendingPiece> find(const Overlay& overlay, std::uint32_t block) {
  const PendingPiece piece = overlay.look(kObject, block, 1)[0];
  if (!piece.pending) return std::nullopt;
  return piece;
}

// I-STORE-2: recovery meets records of two runs in any order.
TEST(Overlay, keeps_the_highest_sequence_whatever_the_order) {
  Overlay overlay;
  OverlayDrop drop;
  overlay.put(kObject, pending(3, 7), drop);
  overlay.put(kObject, pending(3, 5), drop);
  EXPECT_EQ(find(overlay, 3)->sequence, LaneSequence(7));
  overlay.put(kObject, pending(3, 9), drop);
  EXPECT_EQ(find(overlay, 3)->sequence, LaneSequence(9));
  EXPECT_FALSE(find(overlay, 4));
  EXPECT_EQ(overlay.block_count(), 1u);
}

// The extents of a large write that was overwritten before it was destaged must come back.
TEST(Overlay, gives_back_extents_that_nothing_names_any_more) {
  Overlay overlay;
  OverlayDrop drop;
  overlay.put(kObject, pending(0, 1, PendingKind::extent), drop);
  overlay.put(kObject, pending(0, 2), drop);
  ASSERT_EQ(drop.superseded.size(), 1u);
  EXPECT_EQ(drop.superseded[0].first, LaneSequence(1));
  EXPECT_EQ(drop.superseded[0].second, (DeviceRun{BlockIndex(1001), 1}));
}

// Each block promises at most one home: a second reservation for it is returned at once.
TEST(Overlay, holds_one_reservation_for_a_block) {
  Overlay overlay;
  OverlayDrop drop;
  overlay.put(kObject, pending(0, 1, PendingKind::journal, true), drop);
  overlay.put(kObject, pending(0, 2, PendingKind::journal, true), drop);
  EXPECT_EQ(drop.reservations, 1u);
  overlay.put(kObject, pending(0, 3, PendingKind::zero), drop);
  EXPECT_EQ(drop.reservations, 1u);
  overlay.destaged(kObject, 0, 1, LaneSequence(3), drop);
  EXPECT_EQ(drop.reservations, 2u);
  EXPECT_TRUE(overlay.empty());
}

// While one version is destaged a newer one arrives: it must stay; the reservation went to the
// home.
TEST(Overlay, a_destaged_version_leaves_a_newer_one_alone) {
  Overlay overlay;
  OverlayDrop drop;
  overlay.put(kObject, pending(0, 1, PendingKind::journal, true), drop);
  EXPECT_EQ(overlay.take_reservations(kObject, 0, 1), 1u);
  overlay.put(kObject, pending(0, 2), drop);
  overlay.destaged(kObject, 0, 1, LaneSequence(1), drop);
  EXPECT_EQ(find(overlay, 0)->sequence, LaneSequence(2));
  EXPECT_EQ(overlay.take_reservations(kObject, 0, 1), 0u);
  EXPECT_EQ(drop.reservations, 0u);
}

// A removed object reads as zeros, except for what was written after the removal.
TEST(Overlay, removal_hides_older_blocks_only) {
  Overlay overlay;
  OverlayDrop drop;
  overlay.put(kObject, pending(0, 1), drop);
  overlay.put(kObject, pending(1, 3), drop);
  overlay.remove_object(kObject, LaneSequence(2), drop);
  EXPECT_EQ(find(overlay, 0)->kind, PendingKind::zero);
  EXPECT_EQ(find(overlay, 1)->sequence, LaneSequence(3));
  EXPECT_EQ(find(overlay, 900)->kind, PendingKind::zero);
  overlay.put(kObject, pending(2, 1), drop);
  EXPECT_EQ(find(overlay, 2)->kind, PendingKind::zero);
  overlay.removal_destaged(kObject, LaneSequence(2));
  EXPECT_FALSE(find(overlay, 0));
  EXPECT_TRUE(find(overlay, 1));
}

// A small write into a pending large one cuts it: each part keeps its own place and checksums, and
// only the blocks that were replaced come back.
TEST(Overlay, a_write_into_a_longer_one_cuts_it) {
  Overlay overlay;
  OverlayDrop drop;
  overlay.put(kObject, LongRun(16, 16, 1, PendingKind::extent, 500).run, drop);
  overlay.put(kObject, LongRun(20, 2, 2, PendingKind::journal, 900).run, drop);
  ASSERT_EQ(drop.superseded.size(), 1u);
  EXPECT_EQ(drop.superseded[0].second, (DeviceRun{BlockIndex(504), 2}));
  EXPECT_EQ(overlay.block_count(), 16u);
  const PendingPieces pieces = overlay.look(kObject, 18, 6);
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces[0].location, BlockIndex(502));
  EXPECT_EQ(pieces[0].block_count, 2u);
  EXPECT_EQ(pieces[1].location, BlockIndex(900));
  EXPECT_EQ(pieces[2].location, BlockIndex(506));
  EXPECT_EQ(pieces[2].checksums[1], LongRun::checksum(23, 1));
}

// What is compared is a model of single blocks: whatever the order and the overlaps.
TEST(Overlay, runs_mean_what_their_single_blocks_would) {
  struct Block {
    std::uint64_t sequence = 0;
    std::uint64_t location = 0;
    bool reserved = false;
    PendingKind kind = PendingKind::zero;
  };
  Rng rng(7);
  for (int round = 0; round < 300; ++round) {
    Overlay overlay;
    OverlayDrop drop;
    std::array<Block, kLeafBlocks> model;
    std::uint32_t reserved_dropped = 0;
    std::map<std::uint64_t, std::uint64_t> superseded;  // location -> sequence
    std::vector<std::uint64_t> sequences(12);
    std::iota(sequences.begin(), sequences.end(), 1);
    for (std::size_t i = sequences.size(); i > 1; --i) {
      std::swap(sequences[i - 1], sequences[rng.below(i)]);
    }
    for (const std::uint64_t sequence : sequences) {
      const auto first = static_cast<std::uint32_t>(rng.below(kLeafBlocks));
      const auto count = static_cast<std::uint32_t>(1 + rng.below(kLeafBlocks - first));
      if (rng.below(4) == 0) {  // a batch brought one version home
        const std::uint64_t gone = sequences[rng.below(sequences.size())];
        overlay.destaged(kObject, first, count, LaneSequence(gone), drop);
        for (std::uint32_t i = first; i < first + count; ++i) {
          if (model[i].sequence != gone) continue;
          reserved_dropped += model[i].reserved ? 1 : 0;
          model[i] = {};
        }
      }
      const auto kind = rng.below(2) == 0 ? PendingKind::extent : PendingKind::journal;
      LongRun added(first, count, sequence, kind, sequence * 100);
      if (kind == PendingKind::journal) {
        added.run.reserved = static_cast<std::uint32_t>(rng.below(std::uint64_t{1} << count));
      }
      overlay.put(kObject, added.run, drop);
      for (std::uint32_t i = 0; i < count; ++i) {
        Block& block = model[first + i];
        const bool reserved = (added.run.reserved >> i & 1) != 0;
        reserved_dropped += reserved && block.reserved ? 1 : 0;
        const Block fresh{sequence, sequence * 100 + i, reserved || block.reserved, kind};
        const Block& loser = block.sequence > sequence ? fresh : block;
        if (loser.sequence != 0 && loser.kind == PendingKind::extent) {
          superseded[loser.location] = loser.sequence;
        }
        if (block.sequence < sequence) block = fresh;
        block.reserved = fresh.reserved;
      }
    }
    for (std::uint32_t i = 0; i < kLeafBlocks; ++i) {
      const auto found = find(overlay, i);
      ASSERT_EQ(found.has_value(), model[i].sequence != 0);
      if (!found) continue;
      EXPECT_EQ(found->sequence.value, model[i].sequence);
      EXPECT_EQ(found->location.value, model[i].location);
      EXPECT_EQ(found->checksums[0], LongRun::checksum(i, model[i].sequence));
      EXPECT_EQ(overlay.take_reservations(kObject, i, 1), model[i].reserved ? 1u : 0u);
    }
    EXPECT_EQ(drop.reservations, reserved_dropped);
    std::map<std::uint64_t, std::uint64_t> dropped;
    for (const auto& [sequence, run] : drop.superseded) {
      for (std::uint32_t i = 0; i < run.blocks; ++i) {
        EXPECT_TRUE(dropped.emplace(run.start.value + i, sequence.value).second);
      }
    }
    EXPECT_EQ(dropped, superseded);
  }
}

}  // namespace
}  // namespace sarsen
