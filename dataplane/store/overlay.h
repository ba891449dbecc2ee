// Overlay: what the journal holds that the index does not know yet, block by block.
//
// A block that is in the overlay is read from where the overlay says; one that is not is read from
// where the index says.
//
// Shard    One.   Bounded by the journal: an entry per block of each record that is not yet
// destaged. Invariant I-STORE-2  The entry of a block is that of the highest lane sequence among
// its durable
//                      records that are not in the index.
#pragma once

#include <cstdint>
#include <optional>
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

struct PendingBlock {
  LaneSequence sequence;
  BlockIndex location;
  std::uint32_t checksum = 0;
  PendingKind kind = PendingKind::journal;
  bool reserved = false;  // holds a reservation of one block for its home
};

// What a put or an erase pushed out.
struct OverlayDrop {
  std::uint32_t reservations = 0;  // to be given back
  // Blocks of large writes that nothing names any more, with the sequence of their write.
  std::vector<std::pair<LaneSequence, BlockIndex>> superseded;
};

class Overlay {
 public:
  // Nothing: ask the index.
  std::optional<PendingBlock> find(const ObjectKey& object, std::uint32_t block) const;
  // The sequence of a pending removal of the whole object, if there is one.
  std::optional<LaneSequence> removal(const ObjectKey& object) const;

  // Keeps the newer of `pending` and what is there; the reservation of what was there stays with
  // the block.
  void put(const ObjectKey& object, std::uint32_t block, PendingBlock pending, OverlayDrop& drop);
  // Everything older of the object goes; its blocks read as zeros unless written later.
  void remove_object(const ObjectKey& object, LaneSequence sequence, OverlayDrop& drop);
  // The destager takes over the block's reservation, if there is one.
  bool take_reservation(const ObjectKey& object, std::uint32_t block);
  // The index now holds the block as of `sequence`; a newer pending version stays.
  void destaged(const ObjectKey& object, std::uint32_t block, LaneSequence sequence,
                OverlayDrop& drop);
  void removal_destaged(const ObjectKey& object, LaneSequence sequence);

  std::size_t block_count() const { return block_count_; }
  bool empty() const { return block_count_ == 0 && removals_.empty(); }

 private:
  struct Entry {
    std::uint8_t index = 0;  // of the block in its leaf
    PendingBlock pending;
  };
  using Leaf = absl::InlinedVector<Entry, 1>;
  static LeafKey key_of(const ObjectKey& object, std::uint32_t block);
  PendingBlock* entry_of(const ObjectKey& object, std::uint32_t block);

  absl::flat_hash_map<LeafKey, Leaf, std::hash<LeafKey>> leaves_;
  absl::flat_hash_map<ObjectKey, LaneSequence, std::hash<ObjectKey>> removals_;
  std::size_t block_count_ = 0;
};

}  // namespace sarsen
