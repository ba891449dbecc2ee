#include "dataplane/store/store.h"

#include <utility>

#include "dataplane/runtime/gate.h"
#include "dataplane/store/destager.h"
#include "dataplane/store/overlap_order.h"
#include "dataplane/store/store_check.h"
#include "dataplane/store/store_list.h"
#include "dataplane/store/store_open.h"
#include "dataplane/store/store_read.h"
#include "dataplane/store/store_write.h"

namespace sarsen {

class Store::Core {
 public:
  Core(Env& env, Disk& disk, BlockingDisk& blocking_disk, StoreLimits limits)
      : state(env, disk, blocking_disk, limits),
        writer(state),
        reader(state),
        order(env.executor),
        gate(env.executor) {}

  Task<Result<void>> open() {
    auto roots = co_await open_index(state);
    if (!roots) co_return fail(roots.error());
    const SegmentGeneration live_from = roots->live_from;
    auto replayed = co_await replay_journal(state, *std::move(roots));
    if (!replayed) co_return fail(replayed.error());
    // Before any home is overwritten with what was read: it must not vanish after that. (What a
    // flush of an earlier run failed to cover is written again below.)
    SARSEN_CO_TRY(co_await state.flush());
    destager = std::make_unique<Destager>(state, live_from);
    std::vector<StoreWrite::Again> again;
    for (RecoveredRecord& record : replayed->unproven) {
      if (state.env.faults.planted("recovery.report_unproven")) break;
      auto pieces = co_await writer.read_again(std::move(record));
      if (!pieces) co_return fail(pieces.error());
      std::move(pieces->begin(), pieces->end(), std::back_inserter(again));
    }
    SARSEN_CO_TRY(co_await destager->make_room(replayed->tight));
    state.journal = std::make_unique<JournalWriter>(
        state.env, state.disk, *state.pool, state.superblock, state.limits.journal, &writer);
    state.journal->start();
    // What is written again may need more than one segment.
    destager->start();
    writer.set_reclaim([this] { return destager->drain(); });
    started = true;
    // What was read may be in the device's cache only, and lost to a flush that failed before: it
    // is written again, and then the old copies are void (rule S1).
    for (StoreWrite::Again& piece : again) {
      SARSEN_CO_TRY(co_await writer.write_again(std::move(piece)));
    }
    JournalRecord ends;
    ends.kind = RecordKind::stream_ends;
    ends.ends = std::move(replayed->ends);
    auto recorded = co_await state.journal->append(std::move(ends), {});
    if (!recorded) co_return fail(recorded.error());
    co_return Result<void>{};
  }

  Task<void> stop() {
    co_await gate.close();
    if (started) co_await destager->stop();
    if (state.pool) state.pool->close();
    if (state.journal) co_await state.journal->stop();
    // RocksDB joins its threads: not on the reactor.
    co_await state.env.blocking.run([this] {
      if (state.db) state.db->close();
      state.db.reset();
      state.files.reset();
      state.table.reset();
      return true;
    });
  }

  StoreState state;
  StoreWrite writer;
  StoreRead reader;
  std::unique_ptr<Destager> destager;
  bool started = false;
  OverlapOrder order;
  Gate gate;
};

Store::Store(std::unique_ptr<Core> core) : core_(std::move(core)) {}
Store::~Store() = default;

Task<Result<Superblock>> Store::format(Env& env, Disk& disk, BlockingDisk& blocking_disk,
                                       FormatOptions options) {
  return format_store(env, disk, blocking_disk, options);
}

Task<Result<std::unique_ptr<Store>>> Store::open(Env& env, Disk& disk, BlockingDisk& blocking_disk,
                                                 StoreLimits limits) {
  auto core = std::make_unique<Core>(env, disk, blocking_disk, limits);
  auto opened = co_await core->open();
  if (!opened) {
    co_await core->stop();
    co_return fail(opened.error());
  }
  co_return std::unique_ptr<Store>(new Store(std::move(core)));
}

Task<void> Store::stop() {
  return core_->stop();
}

Task<Result<void>> Store::write(WriteRequest request) {
  auto hold = core_->gate.hold();
  if (!hold) co_return fail(make_error(StoreError::stopping));
  OverlapOrder::Turn turn(core_->order, request.object, request.first_block,
                          request.data.size() / kBlockBytes);
  if (!turn.is_first()) co_await turn.wait();
  co_return co_await core_->writer.write(request);
}

Task<Result<void>> Store::zero(ObjectKey object, BlockRange range, WriteStamp stamp) {
  auto hold = core_->gate.hold();
  if (!hold) co_return fail(make_error(StoreError::stopping));
  OverlapOrder::Turn turn(core_->order, object, range.first_block, range.block_count);
  if (!turn.is_first()) co_await turn.wait();
  co_return co_await core_->writer.zero(object, range, stamp);
}

Task<Result<void>> Store::remove(ObjectKey object, WriteStamp stamp) {
  auto hold = core_->gate.hold();
  if (!hold) co_return fail(make_error(StoreError::stopping));
  OverlapOrder::Turn turn(core_->order, object, 0, kBlocksPerObject);
  if (!turn.is_first()) co_await turn.wait();
  co_return co_await core_->writer.remove(object, stamp);
}

Task<Result<void>> Store::read(ObjectKey object, std::uint32_t first_block,
                               std::span<std::byte> into) {
  auto outcome = co_await read_partial(object, first_block, into);
  if (!outcome) co_return fail(outcome.error());
  if (!outcome->corrupt_blocks.empty()) {
    co_return fail(make_error(StoreError::corrupt_block,
                              std::to_string(outcome->corrupt_blocks.size()) +
                                  " blocks, the first is block " +
                                  std::to_string(outcome->corrupt_blocks.front()) + " of object " +
                                  std::to_string(object.object_number)));
  }
  co_return Result<void>{};
}

Task<Result<ReadOutcome>> Store::read_partial(ObjectKey object, std::uint32_t first_block,
                                              std::span<std::byte> into) {
  auto hold = core_->gate.hold();
  if (!hold) co_return fail(make_error(StoreError::stopping));
  co_return co_await core_->reader.read(object, first_block, into);
}

Task<Result<std::vector<AllocationRun>>> Store::allocation(ObjectKey object, BlockRange range) {
  auto hold = core_->gate.hold();
  if (!hold) co_return fail(make_error(StoreError::stopping));
  co_return co_await core_->reader.allocation(object, range);
}

Task<Result<ObjectPage>> Store::objects(KeyRange range, std::string from,
                                        std::uint32_t objects_max) {
  auto hold = core_->gate.hold();
  if (!hold) co_return fail(make_error(StoreError::stopping));
  co_return co_await list_objects(core_->state, std::move(range), std::move(from), objects_max);
}

Task<Result<void>> Store::checkpoint() {
  auto hold = core_->gate.hold();
  if (!hold) co_return fail(make_error(StoreError::stopping));
  co_return co_await core_->destager->drain();
}

Task<Result<ScrubReport>> Store::scrub(ScrubPace pace) {
  auto hold = core_->gate.hold();
  if (!hold) co_return fail(make_error(StoreError::stopping));
  co_return co_await scrub_store(core_->state, core_->reader, pace);
}

Task<Result<SpaceAccount>> Store::audit() {
  auto hold = core_->gate.hold();
  if (!hold) co_return fail(make_error(StoreError::stopping));
  auto quiet = co_await core_->destager->quiet().acquire(Destager::kQuietUnits);
  if (!quiet) co_return fail(make_error(StoreError::stopping));
  // Nor may a chunk be on its way from the table to a lane.
  auto still = co_await core_->state.growing.acquire(1);
  if (!still) co_return fail(still.error());
  co_return co_await audit_store(core_->state);
}

const Superblock& Store::superblock() const {
  return core_->state.superblock;
}
const RecoveryReport& Store::recovery() const {
  return core_->state.recovery;
}

StoreStats Store::stats() const {
  const StoreState& state = core_->state;
  StoreStats stats;
  stats.space = space_account(state);
  stats.writes = state.writes;
  stats.reads = state.reads;
  stats.user_bytes_written = state.user_bytes_written;
  stats.journal_bytes_written = state.journal->bytes_written();
  stats.home_bytes_written = state.home_bytes_written;
  stats.metadata_bytes_written =
      state.files->stats().bytes_written + state.table->stats().bytes_written;
  stats.blocks_coalesced = state.blocks_coalesced;
  stats.checkpoints = state.checkpoints;
  stats.index_damage_found = state.index_damage_found;
  stats.corrupt_blocks_found = state.corrupt_blocks_found;
  stats.segments_free = static_cast<std::uint32_t>(state.pool->free_count());
  stats.segments_total = static_cast<std::uint32_t>(state.pool->total_count());
  stats.read_only = state.failure.has_value();
  return stats;
}

bool Store::is_lane_space(ByteOffset offset, std::uint64_t size) const {
  const StoreGeometry& geometry = core_->state.superblock.geometry;
  const std::uint64_t start = geometry.chunks_start().value;
  const std::uint64_t end = start + geometry.chunk_count * geometry.chunk_bytes;
  if (size == 0 || offset.value < start || offset.value + size > end || !core_->state.table) {
    return false;
  }
  const auto owners = core_->state.table->owners();
  const std::uint64_t last = (offset.value + size - 1 - start) / geometry.chunk_bytes;
  for (std::uint64_t i = (offset.value - start) / geometry.chunk_bytes; i <= last; ++i) {
    if (!owners[i].is_lane()) return false;
  }
  return true;
}

}  // namespace sarsen
