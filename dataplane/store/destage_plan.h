// DestagePlan: what a batch of journal segments changes in the index, decided in one turn.
//
// Only the newest pending version of a block is destaged; older ones were coalesced in the journal.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "dataplane/store/index/object_key.h"
#include "dataplane/store/store_state.h"

namespace sarsen {

enum class BlockChangeKind : std::uint8_t {
  move,   // data is in the journal at `source` and goes home
  adopt,  // data is home at `source` already (a large write)
  zero,
  lost,  // acknowledged data that cannot be found: becomes a corrupt extent
};

struct BlockChange {
  std::uint8_t block = 0;  // within the leaf
  BlockChangeKind kind = BlockChangeKind::move;
  BlockIndex source;
  std::uint32_t checksum = 0;
  LaneSequence sequence;
  PgEpoch pg_epoch;
  PgSequence pg_sequence;
  std::uint64_t change_generation = 0;
};

struct LeafChange {
  LaneId lane;
  bool clear_first = false;  // the object was removed before these changes
  std::vector<BlockChange> blocks;
};

struct LeafKeyOrder {
  bool operator()(const LeafKey& a, const LeafKey& b) const { return key_order(a, b) < 0; }
};

struct DestagePlan {
  std::map<LeafKey, LeafChange, LeafKeyOrder> leaves;  // in the order of RocksDB's keys
  // Removals of whole objects; their leaves are found in RocksDB.
  std::vector<std::pair<ObjectKey, LaneSequence>> removals;
  std::map<std::uint32_t, LaneSequence> applied;        // by lane
  std::map<std::uint32_t, std::uint64_t> reservations;  // by lane: taken over from the overlay
  SegmentGeneration live_from;                          // after the batch
  std::uint64_t coalesced = 0;
};

// Plans the settled segments below `end`, and takes over the reservations of their blocks.
DestagePlan make_plan(StoreState& state, SegmentGeneration end);

}  // namespace sarsen
