// What the destager does with an index that is damaged: the keys become corrupt, and the store goes
// on (rule S6).
#include <algorithm>

#include "dataplane/store/destager.h"

namespace sarsen {
namespace {

bool changes_block(const LeafChange& change, std::uint32_t block) {
  return std::ranges::any_of(change.runs, [block](const RunChange& run) {
    return block >= run.first && block < run.end();
  });
}

RunChange lost_block(std::uint32_t block, const JournalRecord& record) {
  RunChange lost;
  lost.first = static_cast<std::uint8_t>(block);
  lost.count = 1;
  lost.kind = ChangeKind::lost;
  lost.record = &record;
  return lost;
}

}  // namespace

// One by one; null for those that cannot be read or decoded.
Task<Result<std::vector<LeafPointer>>> Destager::leaves_around_damage(std::vector<LeafKey> keys) {
  std::vector<LeafPointer> leaves;
  for (const LeafKey& key : keys) {
    std::vector<LeafKey> one{key};
    auto leaf = co_await state_.leaves->get(std::move(one));
    if (!leaf && leaf.error().error_class() != ErrorClass::corrupt) co_return fail(leaf.error());
    leaves.push_back(leaf ? leaf->front() : nullptr);
  }
  co_return leaves;
}

// For a leaf that cannot be read: what it had beside the changed blocks is corrupt from now on,
// zeros included. The device blocks that it named stay owned by nobody until a repair.
LeafChange Destager::all_others_lost(Batch& batch, const LeafChange& change) {
  LeafChange all = change;
  state_.index_damage_found += kLeafBlocks;
  const JournalRecord& record = batch.lost.emplace_back();
  for (std::uint32_t block = 0; block < kLeafBlocks && !change.clear_first; ++block) {
    if (!changes_block(change, block)) all.runs.push_back(lost_block(block, record));
  }
  return all;
}

bool Destager::is_damaged(const LeafChange& change, const IndexLeaf& leaf) const {
  const ExtentAllocator& allocator = state_.lanes[change.lane.value].allocator;
  return std::ranges::any_of(leaf.extents(), [&](const Extent& extent) {
    return !extent.shared && !allocator.owns(extent.stored_run());
  });
}

// I-STORE-11. Takes from the leaf what it names wrongly, and adds to the change that these blocks
// are lost: they get a home of their own, and are corrupt there.
LeafChange Destager::without_damage(Batch& batch, const LeafChange& change, IndexLeaf& leaf) {
  const ExtentAllocator& allocator = state_.lanes[change.lane.value].allocator;
  std::vector<Extent> damaged;
  for (const Extent& extent : leaf.extents()) {
    if (!extent.shared && !allocator.owns(extent.stored_run())) damaged.push_back(extent);
  }
  LeafChange mended = change;
  for (const Extent& extent : damaged) {
    state_.index_damage_found += extent.block_count;
    (void)leaf.remove(extent.first_block, extent.block_count);
    JournalRecord& record = batch.lost.emplace_back();
    record.lane_sequence = extent.lane_sequence;
    record.stamp.pg_epoch = extent.pg_epoch;
    record.stamp.pg_sequence = extent.pg_sequence;
    for (std::uint32_t block = extent.first_block; block < extent.end_block(); ++block) {
      if (change.clear_first || changes_block(change, block)) continue;
      mended.runs.push_back(lost_block(block, record));
    }
  }
  return mended;
}

// Nobody promised homes to blocks that turn out to be lost.
Task<Result<void>> Destager::promise_lost(DestagePlan* plan, const LeafChange* mended) {
  Lane& lane = state_.lanes[mended->lane.value];
  std::uint64_t lost = 0;
  for (const RunChange& run : mended->runs) lost += run.kind == ChangeKind::lost ? run.count : 0;
  while (!lane.allocator.reserve(lost, Purpose::destage)) {
    if (auto grown = co_await grow_lane(state_, lane); !grown) {
      // A full device and a damaged index: what is acknowledged stays in the journal. Never as
      // no_space, which would tell writers whose records are under way that they wrote nothing.
      state_.fail_writes(make_error(StoreError::device_failed,
                                    "no home for what the index lost: " + grown.error().message()));
      co_return fail(*state_.failure);
    }
  }
  plan->reservations[lane.id.value] += lost;
  co_return Result<void>{};
}

// Blocks that the index dropped and that their lane does not own stay as they are: freeing them
// could free another object's.
void Destager::free_or_alarm(Lane& lane, DeviceRun run, CommitTicket ticket) {
  if (lane.allocator.free_to_quarantine(run, ticket)) return;
  state_.index_damage_found += run.blocks;
}

}  // namespace sarsen
