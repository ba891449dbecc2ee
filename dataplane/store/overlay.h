// Overlay: what the journal holds that the index does not know yet.
//
// A block that is in the overlay is read from where the overlay says; one that is not is read from
// where the index says. Neighbouring blocks of one record are one run, so that a large write costs
// a step for each leaf and not for each block.
//
// Shard    One.   Bounded by the journal: at most an entry per block of each record that is not yet
// destaged. Invariant I-STORE-2  The entry of a block is that of the highest lane sequence among
// its durable
//                      records that are not in the index.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/container/inlined_vector.h>

#include "dataplane/base/units.h"
#include "dataplane/store/index/device_run.h"
#include "dataplane/store/index/object_key.h"

namespace sarsen {

enum class PendingKind : std::uint8_t {
  journal,  // the data is in a journal segment, at `location`
  extent,   // the data is home already, at `location` (a large write)
  zero,     // reads as zeros
  lost,     // acknowledged, but the data cannot be found: corrupt
};

// Blocks of one record, all in one leaf.
struct PendingRun {
  std::uint32_t first_block = 0;  // within the object
  std::uint32_t block_count = 1;
  LaneSequence sequence;
  BlockIndex location;                            // of the first block
  std::span<const std::uint32_t> checksums = {};  // one a block, or none
  PendingKind kind = PendingKind::journal;
  std::uint32_t reserved = 0;  // bit i: block i of the run holds a reservation for its home
};

// What is known of a part of a leaf.
struct PendingPiece {
  std::uint32_t first_block = 0;  // within the object
  std::uint32_t block_count = 0;
  bool pending = false;  // false: ask the index; what follows means nothing then
  PendingKind kind = PendingKind::zero;
  LaneSequence sequence;
  BlockIndex location;                            // of the first block
  std::span<const std::uint32_t> checksums = {};  // valid until the overlay changes
};
using PendingPieces = absl::InlinedVector<PendingPiece, 2>;

// What a put or an erase pushed out.
struct OverlayDrop {
  std::uint32_t reservations = 0;  // to be given back
  // Blocks of large writes that nothing names any more, with the sequence of their write.
  std::vector<std::pair<LaneSequence, DeviceRun>> superseded;
};

class Overlay {
 public:
  // The blocks [first, first + count) of one leaf, in order and without gaps.
  PendingPieces look(const ObjectKey& object, std::uint32_t first_block,
                     std::uint32_t block_count) const;
  // The sequence of a pending removal of the whole object, if there is one.
  std::optional<LaneSequence> removal(const ObjectKey& object) const;

  // Keeps for each block the newer of `run` and what is there; the reservation of what was there
  // stays with the block.
  void put(const ObjectKey& object, const PendingRun& run, OverlayDrop& drop);
  // Everything older of the object goes; its blocks read as zeros unless written later.
  void remove_object(const ObjectKey& object, LaneSequence sequence, OverlayDrop& drop);
  // The destager takes over the reservations of blocks of one leaf; returns how many there were.
  std::uint32_t take_reservations(const ObjectKey& object, std::uint32_t first_block,
                                  std::uint32_t block_count);
  // The index now holds these blocks of one leaf as of `sequence`; newer pending versions stay.
  void destaged(const ObjectKey& object, std::uint32_t first_block, std::uint32_t block_count,
                LaneSequence sequence, OverlayDrop& drop);
  void removal_destaged(const ObjectKey& object, LaneSequence sequence);

  // Objects with a pending version of some block, in key order.
  std::vector<ObjectKey> objects() const;
  std::size_t block_count() const { return block_count_; }
  bool empty() const { return block_count_ == 0 && removals_.empty(); }

 private:
  using Mask = std::uint32_t;  // of the blocks of a leaf
  struct Run {
    std::uint8_t first = 0;  // within the leaf
    std::uint8_t count = 0;
    PendingKind kind = PendingKind::journal;
    LaneSequence sequence;
    BlockIndex location;
    absl::InlinedVector<std::uint32_t, 4> checksums;
  };
  using Runs = absl::InlinedVector<Run, 1>;
  struct Leaf {
    Mask reserved = 0;  // only of blocks that a run covers
    Runs runs;          // disjoint, in no order
  };
  static LeafKey key_of(const ObjectKey& object, std::uint32_t block);
  static Mask mask_of(std::uint32_t first, std::uint32_t count);
  static Mask mask_of(const Run& run) { return mask_of(run.first, run.count); }
  // The part of a run that is in [first, first + count).
  static Run part_of(const Run& run, std::uint32_t first, std::uint32_t count);
  // Adds the parts of `run` that are in `mask` to `runs`.
  static void add_parts(const Run& run, Mask mask, Runs& runs);
  static void push_out(const Run& run, Mask mask, OverlayDrop& drop);
  // Takes the blocks of `mask` from the runs for which `goes` holds; returns which they were.
  template <typename Goes>
  Mask take_out(Leaf& leaf, Mask mask, Goes goes, OverlayDrop* drop);

  absl::flat_hash_map<LeafKey, Leaf, std::hash<LeafKey>> leaves_;
  absl::flat_hash_map<ObjectKey, LaneSequence, std::hash<ObjectKey>> removals_;
  std::size_t block_count_ = 0;
};

}  // namespace sarsen
