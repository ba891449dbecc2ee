// DestagePlan: what a batch of journal segments changes in the index.
//
// Only the newest pending version of a block is destaged; older ones were coalesced in the journal.
// Blocks of one record that are neighbours and share a fate are one change.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/container/inlined_vector.h>

#include "dataplane/runtime/yield.h"
#include "dataplane/store/index/object_key.h"
#include "dataplane/store/store_state.h"

namespace sarsen {

enum class ChangeKind : std::uint8_t {
  move,   // data is in the journal at `source` and goes home
  adopt,  // data is home at `source` already (a large write)
  zero,
  lost,  // acknowledged data that cannot be found: becomes a corrupt extent
};

struct RunChange {
  std::uint8_t first = 0;  // within the leaf
  std::uint8_t count = 0;
  ChangeKind kind = ChangeKind::move;
  std::uint32_t record_block = 0;  // of its first block, within the record
  BlockIndex source;               // of its first block
  // In StoreState::segments: a settled segment keeps its records until its batch is published.
  const JournalRecord* record = nullptr;

  std::uint32_t end() const { return std::uint32_t{first} + count; }
  LaneSequence sequence() const { return record->lane_sequence; }
  std::uint32_t checksum(std::uint32_t i) const {
    return record->checksums.empty() ? 0 : record->checksums[record_block + i];
  }
  bool needs_home() const { return kind == ChangeKind::move || kind == ChangeKind::lost; }
};

// The blocks [first, end) of the leaf as far as `run` has them; count 0: none.
RunChange part_of(const RunChange& run, std::uint32_t first, std::uint32_t end);

struct LeafChange {
  LeafKey key;
  LaneId lane;
  bool clear_first = false;                // the object was removed before these changes
  absl::InlinedVector<RunChange, 1> runs;  // disjoint, in no order

  // `run` replaces what it overlaps: the last one of a block counts.
  void replace(RunChange run);
};

struct DestagePlan {
  std::vector<LeafChange> leaves;  // in the order of RocksDB's keys
  // Removals of whole objects; their leaves are found in RocksDB.
  std::vector<std::pair<ObjectKey, LaneSequence>> removals;
  std::map<std::uint32_t, LaneSequence> applied;        // by lane
  std::map<std::uint32_t, std::uint64_t> reservations;  // by lane: taken over from the overlay
  SegmentGeneration live_from;                          // after the batch
  std::uint64_t coalesced = 0;

  LeafChange& leaf_of(const LeafKey& key, LaneId lane);
  LeafChange* find(const LeafKey& key);
  // Puts `leaves` in order; afterwards leaf_of() and find() are not to be used.
  void sort();

 private:
  absl::flat_hash_map<LeafKey, std::size_t, std::hash<LeafKey>> places_;
};

// Plans the settled segments below `end`, and takes over the reservations of their blocks. Gives
// way to others between records: what they change meanwhile is newer than anything that is planned.
Task<void> make_plan(StoreState& state, SegmentGeneration end, DestagePlan* plan);

}  // namespace sarsen
