#include "dataplane/store/destage_plan.h"

#include <algorithm>
#include <utility>

namespace sarsen {
namespace {

class Planner {
 public:
  Planner(StoreState& state, DestagePlan& plan) : state_(state), plan_(plan) {}

  void add(const RecoveredRecord& recovered) {
    const JournalRecord& record = recovered.record;
    LaneSequence& applied = plan_.applied[record.lane.value];
    applied = std::max(applied, record.lane_sequence);
    switch (record.kind) {
      case RecordKind::write:
        for (std::uint32_t i = 0; i < record.block_count; ++i) {
          const auto kind = recovered.payload_lost ? BlockChangeKind::lost : BlockChangeKind::move;
          change(record, i, kind, BlockIndex(recovered.payload.value + i));
        }
        break;
      case RecordKind::write_extents: {
        std::uint32_t i = 0;
        for (const DeviceRun& run : record.runs) {
          for (std::uint32_t block = 0; block < run.blocks; ++block, ++i) {
            change(record, i, BlockChangeKind::adopt, BlockIndex(run.start.value + block));
          }
        }
        break;
      }
      case RecordKind::zero:
        for (std::uint32_t i = 0; i < record.block_count; ++i) {
          change(record, i, BlockChangeKind::zero, {});
        }
        break;
      case RecordKind::remove_object: remove(record); break;
      case RecordKind::share_object:
      case RecordKind::stream_ends: break;
    }
  }

 private:
  // Also when a newer removal is pending: that one may still be rolled back.
  void remove(const JournalRecord& record) {
    if (!state_.overlay.removal(record.object)) return;
    plan_.removals.emplace_back(record.object, record.lane_sequence);
    for (auto leaf = plan_.leaves.lower_bound({.object = record.object, .leaf = 0});
         leaf != plan_.leaves.end() && leaf->first.object == record.object; ++leaf) {
      leaf->second.blocks.clear();
    }
  }

  void change(const JournalRecord& record, std::uint32_t i, BlockChangeKind kind,
              BlockIndex source) {
    const std::uint32_t block = record.first_block + i;
    const auto pending = state_.overlay.find(record.object, block);
    // Gone from the overlay: an earlier batch wrote a newer version home (it was tried again).
    const bool superseded = !pending || pending->sequence != record.lane_sequence;
    // A version may be skipped for a newer one only if that one can not be rolled back any more.
    const bool newer_is_safe =
        !pending || pending->sequence <= state_.lanes[record.lane.value].evident;
    if (superseded && newer_is_safe && !state_.env.faults.planted("destage.older_version")) {
      ++plan_.coalesced;
      return;
    }
    if (state_.overlay.take_reservation(record.object, block)) {
      ++plan_.reservations[record.lane.value];
    }
    BlockChange change;
    change.block = static_cast<std::uint8_t>(block % kLeafBlocks);
    change.kind = kind;
    change.source = source;
    change.checksum = record.checksums.empty() ? 0 : record.checksums[i];
    change.sequence = record.lane_sequence;
    change.pg_epoch = record.stamp.pg_epoch;
    change.pg_sequence = record.stamp.pg_sequence;
    change.change_generation = record.stamp.change_generation;
    LeafChange& leaf = leaf_of(record, static_cast<std::uint16_t>(block / kLeafBlocks));
    // Records come in the order of their sequences: the last one of a block counts.
    std::erase_if(leaf.blocks, [&](const BlockChange& c) { return c.block == change.block; });
    leaf.blocks.push_back(change);
  }

  // Blocks of a record come one after the other: mostly it is the leaf of the one before.
  LeafChange& leaf_of(const JournalRecord& record, std::uint16_t number) {
    const LeafKey key{.object = record.object, .leaf = number};
    if (last_ == nullptr || key != last_key_) {
      last_ = &plan_.leaves[key];
      last_->lane = record.lane;
      last_key_ = key;
    }
    return *last_;
  }

  StoreState& state_;
  DestagePlan& plan_;
  LeafKey last_key_;
  LeafChange* last_ = nullptr;  // maps do not move their values
};

}  // namespace

DestagePlan make_plan(StoreState& state, SegmentGeneration end) {
  DestagePlan plan;
  plan.live_from = end;
  for (Lane& lane : state.lanes) {
    if (lane.carried > 0) plan.reservations[lane.id.value] = std::exchange(lane.carried, 0);
  }
  Planner planner(state, plan);
  for (const auto& [generation, records] : state.segments) {
    if (generation >= end) break;
    for (const RecoveredRecord& record : records) planner.add(record);
  }
  return plan;
}

}  // namespace sarsen
