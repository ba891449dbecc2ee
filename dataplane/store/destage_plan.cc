#include "dataplane/store/destage_plan.h"

#include <algorithm>

namespace sarsen {

RunChange part_of(const RunChange& run, std::uint32_t first, std::uint32_t end) {
  RunChange part = run;
  first = std::max<std::uint32_t>(first, run.first);
  end = std::min(end, run.end());
  part.count = 0;
  if (first >= end) return part;
  const std::uint32_t skipped = first - run.first;
  part.first = static_cast<std::uint8_t>(first);
  part.count = static_cast<std::uint8_t>(end - first);
  part.record_block += skipped;
  part.source = BlockIndex(run.source.value + skipped);
  return part;
}

void LeafChange::replace(RunChange run) {
  const std::size_t before = runs.size();
  for (std::size_t i = 0; i < before; ++i) {
    const RunChange old = runs[i];
    if (old.end() <= run.first || run.end() <= old.first) continue;
    runs[i] = part_of(old, 0, run.first);
    if (const RunChange tail = part_of(old, run.end(), kLeafBlocks); tail.count > 0) {
      runs.push_back(tail);
    }
  }
  runs.erase(std::remove_if(runs.begin(), runs.end(), [](const auto& r) { return r.count == 0; }),
             runs.end());
  runs.push_back(run);
}

LeafChange& DestagePlan::leaf_of(const LeafKey& key, LaneId lane) {
  const auto [place, is_new] = places_.try_emplace(key, leaves.size());
  if (is_new) leaves.push_back({.key = key, .lane = lane, .clear_first = false, .runs = {}});
  return leaves[place->second];
}

LeafChange* DestagePlan::find(const LeafKey& key) {
  const auto place = places_.find(key);
  return place == places_.end() ? nullptr : &leaves[place->second];
}

void DestagePlan::sort() {
  places_.clear();
  // Keys are encoded once, not in each comparison.
  std::vector<std::pair<LeafKeyBytes, std::size_t>> order;
  order.reserve(leaves.size());
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    order.emplace_back(encode_leaf_key(leaves[i].key), i);
  }
  std::sort(order.begin(), order.end());
  std::vector<LeafChange> sorted;
  sorted.reserve(leaves.size());
  for (const auto& [key, i] : order) sorted.push_back(std::move(leaves[i]));
  leaves = std::move(sorted);
}

namespace {

class Planner {
 public:
  Planner(StoreState& state, DestagePlan& plan) : state_(state), plan_(plan) {}

  // Returns how many leaves it touched.
  std::uint64_t add(const RecoveredRecord& recovered) {
    const JournalRecord& record = recovered.record;
    LaneSequence& applied = plan_.applied[record.lane.value];
    applied = std::max(applied, record.lane_sequence);
    touched_ = 1;
    switch (record.kind) {
      case RecordKind::write:
        change(record, 0, record.block_count,
               recovered.payload_lost ? ChangeKind::lost : ChangeKind::move, recovered.payload);
        break;
      case RecordKind::write_extents: {
        std::uint32_t first = 0;
        for (const DeviceRun& run : record.runs) {
          change(record, first, run.blocks, ChangeKind::adopt, run.start);
          first += run.blocks;
        }
        break;
      }
      case RecordKind::zero: change(record, 0, record.block_count, ChangeKind::zero, {}); break;
      case RecordKind::remove_object: remove(record); break;
      case RecordKind::share_object:
      case RecordKind::stream_ends: break;
    }
    return touched_;
  }

 private:
  // Also when a newer removal is pending: that one may still be rolled back.
  void remove(const JournalRecord& record) {
    if (!state_.overlay.removal(record.object)) return;
    plan_.removals.emplace_back(record.object, record.lane_sequence);
    for (std::uint16_t number = 0; number < kLeavesPerObject; ++number) {
      LeafChange* leaf = plan_.find({.object = record.object, .leaf = number});
      if (leaf != nullptr) leaf->runs.clear();
    }
    touched_ = kLeavesPerObject;
  }

  // `count` blocks of the record from its block `from` on; their data is at `source`.
  void change(const JournalRecord& record, std::uint32_t from, std::uint32_t count, ChangeKind kind,
              BlockIndex source) {
    if (count == 0) return;
    each_leaf_part(record.first_block + from, count,
                   [&](std::uint32_t first_block, std::uint32_t block_count) {
                     ++touched_;
                     const PendingPieces pieces =
                         state_.overlay.look(record.object, first_block, block_count);
                     for (const PendingPiece& piece : pieces) {
                       const std::uint32_t at = piece.first_block - record.first_block;
                       RunChange run;
                       run.first = static_cast<std::uint8_t>(piece.first_block % kLeafBlocks);
                       run.count = static_cast<std::uint8_t>(piece.block_count);
                       run.kind = kind;
                       run.record_block = at;
                       run.source = BlockIndex(source.value + at - from);
                       run.record = &record;
                       change_run(piece, run);
                     }
                   });
  }

  void change_run(const PendingPiece& pending, const RunChange& run) {
    const JournalRecord& record = *run.record;
    // Gone from the overlay: an earlier batch wrote a newer version home (it was tried again).
    const bool superseded = !pending.pending || pending.sequence != record.lane_sequence;
    // A version may be skipped for a newer one only if that one can not be rolled back any more.
    const bool newer_is_safe =
        !pending.pending || pending.sequence <= state_.lanes[record.lane.value].evident;
    if (superseded && newer_is_safe) {
      plan_.coalesced += run.count;
      return;
    }
    plan_.reservations[record.lane.value] +=
        state_.overlay.take_reservations(record.object, pending.first_block, run.count);
    const LeafKey key{.object = record.object,
                      .leaf = static_cast<std::uint16_t>(pending.first_block / kLeafBlocks)};
    plan_.leaf_of(key, record.lane).replace(run);
  }

  StoreState& state_;
  DestagePlan& plan_;
  std::uint64_t touched_ = 0;
};

}  // namespace

Task<void> make_plan(StoreState& state, SegmentGeneration end, DestagePlan* plan) {
  plan->live_from = end;
  for (Lane& lane : state.lanes) {
    if (lane.carried > 0) plan->reservations[lane.id.value] = std::exchange(lane.carried, 0);
  }
  Planner planner(state, *plan);
  YieldBudget budget(state.env.executor, state.limits.leaves_per_turn);
  // Newer segments may appear while others run; those below `end` are settled.
  for (auto segment = state.segments.begin();
       segment != state.segments.end() && segment->first < end; ++segment) {
    for (const RecoveredRecord& record : segment->second) {
      co_await budget.spend(planner.add(record));
    }
  }
}

}  // namespace sarsen
