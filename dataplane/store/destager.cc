#include "dataplane/store/destager.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "dataplane/store/destage_pieces.h"
#include "dataplane/store/device_runs.h"
#include "dataplane/store/error.h"
#include "dataplane/store/index/index_leaf_codec.h"

namespace sarsen {
namespace {

// Attempts in a row that fail for the same lasting reason, 20 ms apart: five seconds.
constexpr std::uint32_t kFutileRoundsMax = 250;

}  // namespace

Destager::Destager(StoreState& state, SegmentGeneration live_from)
    : state_(state),
      quiet_(state.env.executor, kQuietUnits, 1024),
      committed_live_from_(live_from),
      durable_live_from_(live_from),
      idle_watch_(state.env.clock, state.env.executor, state.limits.idle_destage_after,
                  [this](CancelToken) { return look_if_idle(); }),
      scope_(state.env.executor) {}

void Destager::start() {
  state_.pool->set_cue(state_.destage_cue);
  scope_.spawn(run_batches());
  scope_.spawn(run_checkpoints());
  idle_watch_.start();
}

// ------------------------------------------------------------------------------------- when

// The end of the oldest settled segments, at most destage_segments_max of them; 0 when there is
// none.
SegmentGeneration Destager::batch_end() const {
  const SegmentGeneration settled =
      state_.journal ? state_.journal->settled_below() : state_.pool->next_generation();
  std::uint32_t count = 0;
  SegmentGeneration end;
  for (const auto& [generation, segment] : state_.pool->in_use()) {
    if (generation < committed_live_from_) continue;
    if (generation >= settled || count == state_.limits.destage_segments_max) break;
    end = generation.next();
    ++count;
  }
  return end;
}

bool Destager::batch_is_due() const {
  if (state_.failure || batch_end().value == 0) return false;
  const std::size_t total = state_.pool->total_count();
  std::size_t waiting = 0;
  for (const auto& [generation, segment] : state_.pool->in_use()) {
    if (generation >= committed_live_from_) ++waiting;
  }
  return drains_ > 0 || idle_ || state_.pool->starved() || state_.space_is_wanted ||
         waiting * 100 >= total * state_.limits.destage_start_percent;
}

bool Destager::checkpoint_is_due() const {
  if (state_.failure || last_ticket_ == durable_ticket_) return false;
  std::size_t freeable = 0;
  for (const auto& [generation, segment] : state_.pool->in_use()) {
    if (generation < committed_live_from_) ++freeable;
  }
  const bool nothing_to_destage = batch_end().value == 0;
  return freeable * 100 >= state_.pool->total_count() * state_.limits.checkpoint_percent ||
         ((drains_ > 0 || idle_) && nothing_to_destage) || state_.space_is_wanted ||
         (state_.pool->starved() && freeable > 0);
}

// Space is wanted that only the records of the open segment can bring.
bool Destager::roll_is_due() const {
  return state_.space_is_wanted && !state_.failure && batch_end().value == 0 &&
         last_ticket_ == durable_ticket_ && state_.journal && state_.journal->can_roll();
}

Task<void> Destager::run_batches() {
  while (!stopping_) {
    co_await state_.destage_cue.wait_until(
        [this] { return stopping_ || batch_is_due() || roll_is_due(); });
    if (stopping_) break;
    // An error is the journal's, which tells the writers itself.
    if (roll_is_due()) (void)co_await state_.journal->roll();
    auto turn = co_await quiet_.acquire(1);
    if (!turn) break;
    Result<void> done;
    if (batch_is_due()) done = co_await destage_batch(batch_end());
    turn->give_back();
    co_await note_end(std::move(done));
  }
}

// Beside the batches: neither a flush of the index nor its merging holds one up.
Task<void> Destager::run_checkpoints() {
  while (!stopping_) {
    co_await state_.destage_cue.wait_until([this] { return stopping_ || checkpoint_is_due(); });
    if (stopping_) break;
    auto turn = co_await quiet_.acquire(1);
    if (!turn) break;
    Result<void> done;
    if (checkpoint_is_due()) done = co_await checkpoint();
    turn->give_back();
    co_await note_end(std::move(done));
  }
}

Task<void> Destager::note_end(Result<void> done) {
  idle_ = idle_ && (batch_end().value != 0 || last_ticket_ != durable_ticket_);
  state_.destage_progress.notify_all();
  state_.destage_cue.notify_all();  // what ended may be what the other one waits for
  if (!done && done.error().error_class() == ErrorClass::failed) {
    state_.fail_writes(make_error(StoreError::device_failed, done.error().message()));
  }
  stop_if_futile(done);
  if (!done && !state_.failure && !stopping_) {
    // Memory or space ran out for the moment: try again when something has changed.
    (void)co_await state_.env.clock.sleep(milliseconds(20));
  }
}

// Space for its own work is set aside, so that only damage (an index that cannot be merged any
// more) can make it lack for long; then nobody may wait for it.
void Destager::stop_if_futile(const Result<void>& done) {
  const bool lacks_memory = !done && is(done.error(), RuntimeError::out_of_memory);
  if (done || !lacks_memory) futile_rounds_ = done ? 0 : futile_rounds_ + 1;
  if (futile_rounds_ < kFutileRoundsMax) return;
  state_.fail_writes(make_error(StoreError::device_failed,
                                "destaging makes no progress: " + done.error().message()));
}

// A store that has been left alone destages everything, so that it starts quickly next time.
Task<void> Destager::look_if_idle() {
  // Level-triggered: whatever cue was missed, a look now and then finds what is due.
  state_.destage_cue.notify_all();
  const std::uint64_t groups = state_.journal->groups_written();
  const bool quiet = std::exchange(groups_seen_, groups) == groups;
  if (!quiet || state_.failure || state_.overlay.empty()) co_return;
  if (auto rolled = co_await state_.journal->roll(); !rolled) co_return;
  idle_ = true;
  state_.destage_cue.notify_all();
}

Task<Result<void>> Destager::drain() {
  SARSEN_CO_TRY(co_await state_.journal->roll());
  const SegmentGeneration target = state_.journal->settled_below();
  ++drains_;
  state_.destage_cue.notify_all();
  co_await state_.destage_progress.wait_until([this, target] {
    return state_.failure || stopping_ || durable_live_from_ >= target ||
           (batch_end().value == 0 && last_ticket_ == durable_ticket_);
  });
  --drains_;
  if (state_.failure) co_return fail(*state_.failure);
  if (stopping_) co_return fail(make_error(StoreError::stopping));
  co_return Result<void>{};
}

Task<Result<void>> Destager::make_room(bool everything) {
  while (state_.pool->free_count() == 0 || (everything && batch_end().value != 0)) {
    const SegmentGeneration end = batch_end();
    if (end.value == 0) co_return fail(make_error(StoreError::no_space, "no journal segment"));
    SARSEN_CO_TRY(co_await destage_batch(end));
    SARSEN_CO_TRY(co_await checkpoint());
  }
  co_return Result<void>{};
}

Task<void> Destager::stop() {
  stopping_ = true;
  state_.destage_cue.notify_all();
  state_.destage_progress.notify_all();
  co_await idle_watch_.stop();
  co_await scope_.join();
}

// ------------------------------------------------------------------------------------ batch

Task<Result<void>> Destager::try_batch(SegmentGeneration end) {
  // Readers that look up from now on find the planned blocks in the overlay, not at home.
  if (!state_.env.faults.planted("destage.no_reader_barrier")) co_await state_.epochs.barrier();
  Batch batch;
  if (state_.journal) state_.note_evident(state_.journal->recorded_durable_upto());
  co_await make_plan(state_, end, &batch.plan);
  auto done = co_await carry_out(&batch);
  if (!done && !state_.failure) undo(batch);
  co_return done;
}

// A version that is not certain to be superseded goes home as well, and has no promise of its own:
// the lane may need a chunk more than its writers asked for.
Task<Result<void>> Destager::destage_batch(SegmentGeneration end) {
  while (true) {
    short_of_homes_.reset();
    auto done = co_await try_batch(end);
    if (done || !short_of_homes_ || state_.failure || stopping_) co_return done;
    state_.env.faults.probe("destage.lane_grown");
    if (!co_await grow_lane(state_, state_.lanes[short_of_homes_->value])) co_return done;
  }
}

Task<Result<void>> Destager::carry_out(Batch* batch) {
  SARSEN_CO_TRY(co_await find_removed_leaves(&batch->plan));
  batch->plan.sort();
  Pieces pieces;
  SARSEN_CO_TRY(co_await read_journal(&batch->plan, &pieces));
  SARSEN_CO_TRY(co_await make_leaves(batch, &pieces));
  if (state_.env.faults.planted("destage.commit_before_home")) {
    SARSEN_CO_TRY(co_await commit(batch));
    co_return co_await write_homes(batch, &pieces);
  }
  SARSEN_CO_TRY(co_await write_homes(batch, &pieces));
  co_return co_await commit(batch);
}

// The batch was given up before its commit, for want of memory or space; it will be planned again,
// and keeps what it was promised.
void Destager::undo(Batch& batch) {
  for (const auto& [lane_id, runs] : batch.allocated) {
    Lane& lane = state_.lanes[lane_id];
    for (const DeviceRun& run : runs) {
      lane.allocator.give_back(run);
      if (lane.allocator.reserve(run.blocks, Purpose::destage)) lane.carried += run.blocks;
    }
  }
  for (const auto& [lane, count] : batch.plan.reservations) state_.lanes[lane].carried += count;
}

// Leaves that the index has of removed objects are emptied before later changes apply.
Task<Result<void>> Destager::find_removed_leaves(DestagePlan* plan) {
  const bool planted = state_.env.faults.planted("destage.resurrect_removed");
  if (plan->removals.empty() || planted) co_return Result<void>{};
  std::vector<ObjectKey> objects;
  for (const auto& [object, sequence] : plan->removals) objects.push_back(object);
  MetadataDb& db = *state_.db;
  auto found = co_await state_.env.blocking.run([&db, &objects]() -> Result<std::vector<LeafKey>> {
    std::vector<LeafKey> keys;
    for (const ObjectKey& object : objects) {
      const KeyRange range = object_key_range(object);
      auto cursor = db.cursor(MetadataFamily::index, range.begin, range.end);
      for (; cursor.valid(); cursor.next()) {
        auto key = decode_leaf_key(std::as_bytes(std::span(cursor.key())));
        if (!key) return fail(key.error());
        keys.push_back(*key);
      }
      const auto status = cursor.status();
      if (status) continue;
      if (status.error().error_class() != ErrorClass::corrupt) return fail(status.error());
      // Part of the index is unreadable: whichever leaves the object had, they go.
      for (std::uint16_t leaf = 0; leaf < kLeavesPerObject; ++leaf) keys.push_back({object, leaf});
    }
    return keys;
  });
  if (!found) co_return fail(found.error());
  for (const LeafKey& key : *found) {
    plan->leaf_of(key, state_.lane_of(key.object).id).clear_first = true;
  }
  co_return Result<void>{};
}

Task<Result<void>> Destager::commit(Batch* batch) {
  const CommitTicket ticket = last_ticket_.next();
  account(*batch, ticket);
  MetadataBatch writes;
  const auto text = [](std::span<const std::byte> bytes) {
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  const auto put_number = [&](std::string_view key, std::uint64_t number) {
    writes.put(MetadataFamily::meta, key, text(std::as_bytes(std::span(&number, 1))));
  };
  for (Lane& lane : state_.lanes) {
    for (const ChangedChunk& chunk : lane.allocator.changed_chunks()) {
      const ChunkKeyBytes key = encode_chunk_key(lane.id, chunk.chunk);
      writes.put(MetadataFamily::allocator, text(key), text(chunk.value));
    }
  }
  for (const auto& [lane, sequence] : batch->plan.applied) {
    put_number(applied_key(LaneId(lane)), sequence.value);
  }
  put_number(kLiveFromKey, batch->plan.live_from.value);
  MetadataDb& db = *state_.db;
  // Leaves are immutable by now: another thread may encode them.
  auto written = co_await state_.env.blocking.run([&db, &writes, &text, batch] {
    LeafValueBuffer value;
    for (const NewLeaf& changed : batch->leaves) {
      const LeafKeyBytes key = encode_leaf_key(changed.key);
      if (changed.leaf->empty()) {
        writes.remove(MetadataFamily::index, text(key));
      } else {
        writes.put(MetadataFamily::index, text(key), text(encode_leaf(*changed.leaf, key, value)));
      }
    }
    return db.write(writes);
  });
  if (!written) {
    state_.fail_writes(make_error(StoreError::device_failed, written.error().message()));
    co_return fail(*state_.failure);
  }
  const bool too_early = state_.env.faults.planted("checkpoint.before_publish");
  if (!too_early) co_await publish(batch);
  // Not before: a checkpoint that runs meanwhile must not free segments in which the overlay still
  // finds data (I-STORE-7).
  last_ticket_ = ticket;
  committed_live_from_ = batch->plan.live_from;
  if (too_early) {
    (void)co_await state_.env.clock.sleep(milliseconds(50));
    co_await publish(batch);
  }
  co_return Result<void>{};
}

// Moves blocks between the states of the allocators, for the commit that is being made.
void Destager::account(Batch& batch, CommitTicket ticket) {
  for (const auto& [lane, runs] : batch.allocated) {
    for (const DeviceRun& run : runs) state_.lanes[lane].allocator.commit_allocation(run);
  }
  for (auto& [lane, runs] : batch.adopted) {
    sort_and_join(runs);
    for (const DeviceRun& run : runs) state_.lanes[lane].allocator.commit_allocation(run);
    disown_adopted(state_.lanes[lane], runs);
  }
  for (auto& [lane, count] : batch.plan.reservations) {
    state_.lanes[lane].allocator.unreserve(std::exchange(count, 0));
  }
  for (const auto& [lane_id, runs] : batch.freed) {
    for (const FreedRun& freed : runs) {
      // A shared run stays until its last owner goes; nothing counts owners yet.
      if (freed.shared) continue;
      free_or_alarm(state_.lanes[lane_id], freed.run, ticket);
    }
  }
  for (const auto& [lane_id, sequence] : batch.plan.applied) {
    Lane& lane = state_.lanes[lane_id];
    lane.applied = sequence;
    free_superseded(lane, ticket);
  }
}

// Blocks that a newer write superseded while a batch made the index name them: the index owns them.
void Destager::disown_adopted(Lane& lane, std::span<const DeviceRun> adopted) {
  std::vector<std::pair<LaneSequence, DeviceRun>> left;
  for (const auto& [sequence, run] : lane.superseded) {
    for (const DeviceRun& part : parts_outside(run, adopted)) left.emplace_back(sequence, part);
  }
  lane.superseded = std::move(left);
}

// Blocks of large writes that nothing names: their records are covered by this commit.
void Destager::free_superseded(Lane& lane, CommitTicket ticket) {
  std::erase_if(lane.superseded, [&](const auto& entry) {
    if (entry.first > lane.applied) return false;
    free_or_alarm(lane, entry.second, ticket);
    return true;
  });
}

// The index speaks for the batch from now on. In an order in which a reader finds the same whenever
// it looks: the leaves, while the overlay still answers; then removals, which hide leaves; then
// block by block.
Task<void> Destager::publish(Batch* batch) {
  YieldBudget budget(state_.env.executor, state_.limits.leaves_per_turn);
  for (NewLeaf& changed : batch->leaves) {
    state_.leaves->publish(changed.key, changed.leaf);
    co_await budget.spend();
  }
  for (const auto& [object, sequence] : batch->plan.removals) {
    state_.overlay.removal_destaged(object, sequence);
  }
  for (const LeafChange& change : batch->plan.leaves) {
    OverlayDrop drop;
    for (const RunChange& run : change.runs) {
      state_.overlay.destaged(change.key.object, change.key.leaf * kLeafBlocks + run.first,
                              run.count, run.sequence(), drop);
    }
    state_.settle(state_.lanes[change.lane.value], drop);
    co_await budget.spend();
  }
  for (const auto& [lane, runs] : batch->adopted) disown_adopted(state_.lanes[lane], runs);
  state_.blocks_coalesced += batch->plan.coalesced;
  state_.segments.erase(state_.segments.begin(),
                        state_.segments.lower_bound(batch->plan.live_from));
}

// -------------------------------------------------------------------------------- checkpoint

Task<Result<void>> Destager::checkpoint() {
  const CommitTicket ticket = last_ticket_;
  const SegmentGeneration live_from = committed_live_from_;
  MetadataDb& db = *state_.db;
  if (!state_.env.faults.planted("checkpoint.free_before_flush")) {
    auto flushed = co_await state_.env.blocking.run([&db] { return db.flush(); });
    if (!flushed) {
      if (flushed.error().error_class() == ErrorClass::unavailable) {
        co_return fail(flushed.error());
      }
      state_.fail_writes(make_error(StoreError::device_failed, flushed.error().message()));
      co_return fail(*state_.failure);
    }
  }
  // I-STORE-7
  co_await state_.epochs.barrier();
  durable_ticket_ = ticket;
  durable_live_from_ = live_from;
  for (Lane& lane : state_.lanes) lane.allocator.release_quarantine(ticket);
  state_.pool->release_below(live_from);
  state_.space_is_wanted = std::any_of(state_.lanes.begin(), state_.lanes.end(),
                                       [this](const Lane& l) { return state_.space_is_tight(l); });
  ++state_.checkpoints;
  // Merging is charged to the checkpoint that made it necessary; it never delays a write.
  while (!stopping_) {
    auto step = co_await state_.env.blocking.run([&db] { return db.compact_step(); });
    if (!step || !step->worked) break;
  }
  co_return Result<void>{};
}

}  // namespace sarsen
