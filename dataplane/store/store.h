// Store: one device that keeps objects of 4 MiB as checksummed 4 KiB blocks, crash-safe.
//
// A small write is one journal append and is then acknowledged; the destager moves it home later
// and commits the index to RocksDB. A large write goes to fresh extents first, its journal record
// follows (rule S2). Everything that was acknowledged survives power loss at any moment.
//
// Lifecycle  format() once; open() recovers, makes durable what it reports, and starts the
// background
//            work; stop() ends it cleanly. Destroying an open store without stop() is a bug, except
//            in a simulated crash.
// Shard      One. Blocking work (RocksDB, the device table) runs on env.blocking.
// Owns       Index, allocators, journal stream.   Borrows: Env, Disk, BlockingDisk (outlive it).
// Bounded by StoreLimits.
// Errors     StoreError; RuntimeError out_of_memory. After device_failed the store still reads.
//
// Writes that overlap in flight take effect in the order of their calls. A read sees every write
// that completed before the read began.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dataplane/base/result.h"
#include "dataplane/runtime/cancel.h"
#include "dataplane/runtime/env.h"
#include "dataplane/store/error.h"
#include "dataplane/store/geometry.h"
#include "dataplane/store/journal_writer.h"
#include "dataplane/store/superblock.h"

namespace sarsen {

struct StoreLimits {
  JournalLimits journal;
  // A write of at least this many whole blocks goes to fresh extents instead of through the
  // journal.
  std::uint32_t large_write_blocks_min = 9;  // more than 32 KiB
  std::uint64_t leaf_cache_bytes = 64 * kMiB;
  std::uint64_t metadata_cache_bytes = 32 * kMiB;
  // Settled segments that are destaged together; more of them coalesce more.
  std::uint32_t destage_segments_max = 2;
  // Home writes side by side. Homes are single blocks all over the device.
  std::uint32_t home_writes_max = 64;
  // Index leaves that are planned, changed or published in one turn of the loop: about 1 ms.
  std::uint32_t leaves_per_turn = 512;
  // Destaging begins when this share of the segments (in percent) is used, and at once when idle.
  std::uint32_t destage_start_percent = 30;
  // The index is flushed when this share of the segments waits for it.
  std::uint32_t checkpoint_percent = 25;
  Duration idle_destage_after = milliseconds(500);
};

struct FormatOptions {
  Uuid device{};  // zero: a new one is drawn
  Uuid cluster{};
  std::uint32_t osd_id = 0;
  FormatSizes sizes;
};

struct WriteRequest {
  ObjectKey object;
  std::uint32_t first_block = 0;
  std::span<const std::byte> data;           // whole blocks, valid until the write completes
  std::span<const std::uint32_t> checksums;  // crc32c of each block: end to end, verified here
  WriteStamp stamp;
};

struct BlockRange {
  std::uint32_t first_block = 0;
  std::uint32_t block_count = 0;
};

// A run of blocks of an object that all take space, or all read as zeros.
struct AllocationRun {
  std::uint32_t block_count = 0;
  bool allocated = false;
};

struct ReadOutcome {
  std::vector<std::uint32_t> checksums;       // of each block that was read
  std::vector<std::uint32_t> corrupt_blocks;  // within the object; their bytes are zeros
};

// A part of the list of objects; `next` is where it goes on, empty at the end.
struct ObjectPage {
  std::vector<ObjectKey> objects;
  std::string next;
};

// Where every block of the chunk area is; the sum of the parts is `total`.
struct SpaceAccount {
  std::uint64_t total_blocks = 0;
  std::uint64_t data_blocks = 0;         // referenced by the index or by a pending large write
  std::uint64_t quarantined_blocks = 0;  // freed, not yet reusable
  std::uint64_t free_blocks = 0;         // in chunks of lanes
  std::uint64_t metadata_blocks = 0;     // chunks of the metadata zone
  std::uint64_t unassigned_blocks = 0;   // chunks nobody owns
  std::uint64_t reserved_blocks = 0;     // part of free_blocks, promised to pending small writes
};

struct StoreStats {
  SpaceAccount space;
  std::uint64_t writes = 0;
  std::uint64_t reads = 0;
  std::uint64_t user_bytes_written = 0;
  std::uint64_t journal_bytes_written = 0;
  std::uint64_t home_bytes_written = 0;      // destaging and large writes
  std::uint64_t metadata_bytes_written = 0;  // RocksDB and the device table
  std::uint64_t blocks_coalesced = 0;        // overwritten in the journal, never moved home
  std::uint64_t checkpoints = 0;
  std::uint64_t corrupt_blocks_found = 0;
  // Blocks that the index named and that were not its own: an alarm, fsck tells more.
  std::uint64_t index_damage_found = 0;
  std::uint32_t segments_free = 0;
  std::uint32_t segments_total = 0;
  bool read_only = false;  // the device failed a write
};

// What recovery met; for logs and judges.
struct RecoveryReport {
  std::uint64_t records_replayed = 0;
  std::uint64_t records_rolled_back = 0;
  std::uint64_t headers_rebuilt = 0;
  std::uint64_t records_lost = 0;    // acknowledged, identities unknown: the store refuses to open
  std::uint64_t blocks_corrupt = 0;  // known to be corrupt after recovery
  std::uint32_t superblock_copies_bad = 0;
};

struct ScrubPace {
  std::uint64_t bytes_per_second = 0;  // 0: as fast as it goes
  CancelToken token = {};              // ends it with the token's reason
};

struct ScrubReport {
  std::uint64_t blocks_checked = 0;
  std::uint64_t corrupt_found = 0;
  // The first few, as (object, block).
  std::vector<std::pair<ObjectKey, std::uint32_t>> corrupt;
  // Metadata that no copy has any more, in words; of index leaves the objects they are of may be
  // unreadable, and are not among the blocks checked.
  std::vector<std::string> metadata_damage;
};

class Store {
 public:
  // Overwrites the device. The caller has made sure that nothing of value is on it.
  static Task<Result<Superblock>> format(Env& env, Disk& disk, BlockingDisk& blocking_disk,
                                         FormatOptions options);
  static Task<Result<std::unique_ptr<Store>>> open(Env& env, Disk& disk,
                                                   BlockingDisk& blocking_disk, StoreLimits limits);
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  ~Store();

  Task<void> stop();

  // Durable when it completes. Error: corrupt_block (a checksum does not match the data), no_space
  // (decided before a sequence is assigned: nothing was written), device_failed, bad_request.
  Task<Result<void>> write(WriteRequest request);
  // The blocks read as zeros afterwards and take no space.
  Task<Result<void>> zero(ObjectKey object, BlockRange range, WriteStamp stamp);
  // Every block of the object reads as zeros; its index leaves go.
  Task<Result<void>> remove(ObjectKey object, WriteStamp stamp);

  // `into` is whole blocks. Error: corrupt_block when any block fails its checksum; nothing in
  // `into` may be used then.
  Task<Result<void>> read(ObjectKey object, std::uint32_t first_block, std::span<std::byte> into);
  // The same, but gives what is good and names what is not: for repair and scrub.
  Task<Result<ReadOutcome>> read_partial(ObjectKey object, std::uint32_t first_block,
                                         std::span<std::byte> into);
  Task<Result<std::vector<AllocationRun>>> allocation(ObjectKey object, BlockRange range);
  // Objects of the key range that hold something, or did a moment ago: each that has held something
  // since before the first call is in some page, perhaps in two. `from` is empty at first, then
  // `next` of the page before. The first page is what the journal holds, and may be long.
  Task<Result<ObjectPage>> objects(KeyRange range, std::string from, std::uint32_t objects_max);

  // Destages all that is acknowledged, flushes the index, frees the journal.
  Task<Result<void>> checkpoint();
  // Reads every block of the index and verifies it, and every block of all metadata families.
  Task<Result<ScrubReport>> scrub(ScrubPace pace = {});
  // Compares allocator, index and device table; Error: corrupt_index with what does not balance.
  Task<Result<SpaceAccount>> audit();

  const Superblock& superblock() const;
  const RecoveryReport& recovery() const;
  StoreStats stats() const;
  // Whether all of the device range lies in chunks that lanes own: home data, and nothing else.
  bool is_lane_space(ByteOffset offset, std::uint64_t size) const;

 private:
  class Core;
  explicit Store(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace sarsen
