// StoreState: what the parts of an open store share. Only files of this folder include it.
//
// Shard    One. Blocking parts (table, files, db) are used from jobs of env.blocking only.
//
// Who changes what
//   overlay      on_durable() adds, the destager removes
//   leaves       the destager publishes, everybody reads
//   allocators   large writes take, admission reserves, the destager takes and frees
//   segments     on_durable() adds records, the destager takes whole segments
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "dataplane/runtime/condition.h"
#include "dataplane/runtime/env.h"
#include "dataplane/runtime/semaphore.h"
#include "dataplane/store/flush_guard.h"
#include "dataplane/store/index/extent_allocator.h"
#include "dataplane/store/journal_recovery.h"
#include "dataplane/store/journal_writer.h"
#include "dataplane/store/leaf_cache.h"
#include "dataplane/store/metadata/device_table.h"
#include "dataplane/store/metadata/metadata_db.h"
#include "dataplane/store/metadata/metadata_files.h"
#include "dataplane/store/overlay.h"
#include "dataplane/store/reader_epochs.h"
#include "dataplane/store/segment_pool.h"
#include "dataplane/store/store.h"

namespace sarsen {

// Calls `visit(first_block, block_count)` for the part of each leaf that [first, first + count) of
// an object covers.
template <typename Visit>
void each_leaf_part(std::uint32_t first, std::uint32_t count, Visit visit) {
  for (const std::uint32_t end = first + count; first < end;) {
    const std::uint32_t leaf_end = (first / kLeafBlocks + 1) * kLeafBlocks;
    const std::uint32_t until = std::min(end, leaf_end);
    visit(first, until - first);
    first = until;
  }
}

struct Lane {
  LaneId id;
  ExtentAllocator allocator;
  LaneSequence last_issued;
  LaneSequence applied;  // the index, as written to RocksDB, holds every record up to it
  // Records up to it are known as durable to any recovery; a later one, the last before a crash,
  // can be rolled back when its journal copy rots (rule S1).
  LaneSequence evident;
  // Promised blocks of a batch that was given up, for the next one.
  std::uint64_t carried = 0;
  // Blocks of large writes that were superseded before they were destaged.
  std::vector<std::pair<LaneSequence, DeviceRun>> superseded;

  LaneSequence issue() {
    last_issued = last_issued.next();
    return last_issued;
  }
};

struct StoreState {
  StoreState(Env& environment, Disk& device, BlockingDisk& blocking, StoreLimits store_limits)
      : env(environment),
        disk(device),
        blocking_disk(blocking, environment.faults),
        limits(store_limits),
        epochs(environment.executor),
        destage_cue(environment.executor),
        destage_progress(environment.executor),
        growing(environment.executor, 1, 1u << 20) {}

  Env& env;
  Disk& disk;
  FlushGuard blocking_disk;
  const StoreLimits limits;
  Superblock superblock;
  RecoveryReport recovery;

  std::unique_ptr<DeviceTable> table;
  std::unique_ptr<MetadataFiles> files;
  std::unique_ptr<MetadataDb> db;
  std::unique_ptr<SegmentPool> pool;
  std::unique_ptr<LeafCache> leaves;
  std::unique_ptr<JournalWriter> journal;
  std::vector<Lane> lanes;
  Overlay overlay;
  ReaderEpochs epochs;
  // Durable records of this run that are not evident yet.
  struct Unevident {
    JournalLsn lsn;
    LaneId lane;
    LaneSequence sequence;
  };
  std::deque<Unevident> unevident;
  // Records of each segment in use that are not yet in the index, in the order of the stream.
  std::map<SegmentGeneration, std::vector<RecoveredRecord>> segments;

  // The device failed a write, or the index a commit: the store reads on, and takes no more writes.
  std::optional<Error> failure;
  Condition destage_cue;       // there may be something to destage
  Condition destage_progress;  // a batch or a checkpoint ended
  Semaphore growing;           // one grant of a chunk at a time

  // Set by writers, cleared by checkpoints: what a batch and a checkpoint would free is more than
  // what is left.
  bool space_is_wanted = false;
  bool chunks_are_out = false;  // as of the last time that a lane asked for one

  std::uint64_t writes = 0;
  std::uint64_t reads = 0;
  std::uint64_t user_bytes_written = 0;
  std::uint64_t home_bytes_written = 0;
  std::uint64_t blocks_coalesced = 0;
  std::uint64_t checkpoints = 0;
  std::uint64_t corrupt_blocks_found = 0;
  std::uint64_t index_damage_found = 0;

  // A placement group is a prefix of the reversed hash and lives in one lane (rule S5): lanes are
  // equal parts of the range of reversed hashes, moved on by the pool.
  Lane& lane_of(const ObjectKey& object) {
    const std::uint64_t hash = reverse_bits(placement_hash(object.family, object.object_number));
    return lanes[((hash * lanes.size() >> 32) + object.pool.value) % lanes.size()];
  }
  void note_evident(JournalLsn durable_upto) {
    while (!unevident.empty() && unevident.front().lsn < durable_upto) {
      lanes[unevident.front().lane.value].evident = unevident.front().sequence;
      unevident.pop_front();
    }
  }
  void fail_writes(const Error& error) {
    if (failure) return;
    failure = error;
    // Writers that wait for a segment would wait for ever: nothing is destaged any more.
    if (journal) journal->fail_writes(error);
    if (pool) pool->close();
    destage_cue.notify_all();
    destage_progress.notify_all();
  }
  // No chunk is left, and free space is less than what waits for a batch and a checkpoint.
  bool space_is_tight(const Lane& lane) const {
    const AllocatorAccount blocks = lane.allocator.account();
    const std::uint64_t waits = blocks.pending + blocks.quarantined;
    return chunks_are_out && waits > blocks.free && waits > superblock.geometry.blocks_per_chunk();
  }
  void look_at_space(const Lane& lane) {
    if (space_is_wanted || !space_is_tight(lane)) return;
    space_is_wanted = true;
    destage_cue.notify_all();
  }
  // Everything written before is on stable media. Error: device_failed, from then on for good.
  Task<Result<void>> flush() {
    auto flushed = co_await env.blocking.run([this] { return blocking_disk.flush(); });
    if (!flushed) fail_writes(make_error(StoreError::device_failed, flushed.error().message()));
    co_return flushed;
  }
  // Gives back what the overlay dropped.
  void settle(Lane& lane, OverlayDrop& drop) {
    if (drop.reservations > 0) lane.allocator.unreserve(drop.reservations);
    lane.superseded.insert(lane.superseded.end(), drop.superseded.begin(), drop.superseded.end());
    drop = {};
  }
};

// Brings a durable record into the overlay. `reserved_mask`: bit i says that block i of the record
// holds a reservation.
void apply_record(StoreState& state, const RecoveredRecord& recovered, std::uint64_t reserved_mask);

// Adds a chunk to the lane. Error: no_space, device_failed.
Task<Result<void>> grow_lane(StoreState& state, Lane& lane);

// Keys in the `meta` family of RocksDB.
std::string applied_key(LaneId lane);
inline constexpr std::string_view kLiveFromKey = "journal/live_from";

}  // namespace sarsen
