// ExtentAllocator: which blocks of a lane's chunks are free, and when a freed block may be used
// again.
//
// Lifecycle  load() or add_chunk() for every chunk of the lane, mark_used() for what replayed
// records
//            name, then use. No stop: it is plain memory.
// Shard      Belongs to one lane; no locking. Every call is atomic: it succeeds or changes nothing.
// Owns       Its bitmaps: 2 bits a block, 3 in chunks with quarantined blocks.
// Bounded by The lane's chunks; the quarantine by what is freed between two durable commits.
// Errors     IndexError no_space, double_owner, not_owned, outside_lane; those of chunk_bitmap.h.
//
// States of a block
//
//   free ---allocate, mark_used--> pending ---commit_allocation--> owned
//     ^  <------give_back-------------'|                             |
//     |                                 '----free_to_quarantine------'
//     '---release_quarantine--- quarantined <-------'
//
//   pending      allocated for a write or a destage; the index does not name it yet
//   owned        named by the index as of the next commit
//   quarantined  no longer named by the next commit, but perhaps by the durable one
//
// What is stored, and why that is right
//
//   A commit K is one atomic batch: changed leaves, changed_chunks(), and the lane's applied
//   sequence A(K); commits become durable in order. The stored bitmap has the blocks that are owned
//   at that moment; pending and quarantined blocks are stored as free. The caller keeps to:
//
//     P0  The leaves of K name no block because of a record above A(K).
//     P1  commit_allocation() is called for a run when a leaf of the next commit begins to name it.
//     P2  free_to_quarantine(run, K): the leaves of commit K and of all later ones do not name the
//         run, A(K) covers the record that named it, and what superseded it is durable.
//     P3  release_quarantine(K) is called when commit K is durable, and no read or write of a block
//         that was dropped up to K is in flight any more.
//     P4  give_back() only for runs that no durable record can ever name, with no write in flight.
//     P5  A chunk is added after its grant is durable, and its grant is returned after
//         remove_chunk().
//
//   (a) After a crash, bitmap and replay give exactly the owned blocks. Let K be the durable
//   commit. Its bitmap is what its leaves name: a block becomes owned in the commit whose leaf
//   begins to name it (P1) and stops in the commit whose leaf stops (P2). Records above A(K) are
//   replayed, and those that name runs call mark_used().
//     No leak: a block that was allocated for a record that never became durable, or for a destage
//     that is not in K, is stored as free, and no record marks it.
//     No double owner: say a replayed record R names block X. X cannot have been reused after R
//     named it: that takes a durable commit that covers R (P2, P3), and then R is not replayed. So
//     at K, X is pending for R, or not yet allocated for R and free by then, or dropped by a later
//     record and quarantined. In none of these is X owned, since the leaves of K do not know R. For
//     the same reason no two replayed records name X: the second would be such a reuse. A block
//     that the replay itself finds superseded is quarantined again, not freed.
//   So mark_used() of a block that is not free is a fault to be reported, never normal. (When X was
//   owned by somebody else in K, it became free only by a commit after K; K is the last durable
//   one.)
//
//   (b) No block is reused before the commit that dropped it is durable: blocks become free only by
//   release_quarantine() (P3), by give_back(), which is for blocks that nobody names (P4), or by
//   add_chunk(), whose blocks nobody names: a chunk leaves a lane only when all of it is free, and
//   then its durable bitmap is all free too, because each block that was ever owned went through a
//   quarantine whose commit is durable.
//
//   Promises survive a crash: what is used after replay is a subset of what was used before, less
//   the homes that undone destages had taken, which their records reserve again.
//
// Invariants
//   I-ALLOC-1  Each block is in one state; the sums in account() are exact.
//   I-ALLOC-2  reserved <= free: a reservation can always be allocated.
//   I-ALLOC-3  A quarantined block is not allocated before its ticket is released.
//   I-ALLOC-4  The stored bitmap of a chunk is its owned blocks at the moment of changed_chunks().
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include <absl/container/inlined_vector.h>

#include "dataplane/base/result.h"
#include "dataplane/base/units.h"
#include "dataplane/store/index/block_bitmap.h"
#include "dataplane/store/index/chunk_bitmap.h"
#include "dataplane/store/index/device_run.h"

namespace sarsen {

// Number of a commit of the lane's index: 1, 2, 3, ...
using CommitTicket = Strong<struct CommitTicketTag>;
using DeviceRuns = absl::InlinedVector<DeviceRun, 2>;

// Who asks for space. Only what makes or needs room for itself may use the reserve.
enum class Purpose : std::uint8_t {
  write,    // a client's data: leaves the reserve alone
  destage,  // data that is acknowledged already, and its replay
  remove,   // delete, trim, and what they rewrite
};

struct AllocatorOptions {
  std::uint32_t reserve_permille = 20;    // of all blocks, only for destage and remove
  std::uint64_t low_water_blocks = 4096;  // wants_chunk() below this: 16 MiB
  std::uint32_t chunks_scanned_max = 2;   // for each length of run that is looked for
};

// total = free + pending + owned + quarantined.
struct AllocatorAccount {
  std::uint64_t total = 0;
  std::uint64_t free = 0;
  std::uint64_t pending = 0;
  std::uint64_t owned = 0;
  std::uint64_t quarantined = 0;
  std::uint64_t reserved = 0;      // part of free: promised
  std::uint64_t reserve_pool = 0;  // part of free - reserved that Purpose::write cannot have
  bool operator==(const AllocatorAccount&) const = default;
};

struct ChangedChunk {
  ChunkIndex chunk;
  std::vector<std::byte> value;  // for encode_chunk_key(lane, chunk)
};

class ExtentAllocator {
 public:
  ExtentAllocator(LaneId lane, AllocatorOptions options);
  ExtentAllocator(ExtentAllocator&&) noexcept;
  ExtentAllocator& operator=(ExtentAllocator&&) noexcept;
  ~ExtentAllocator();

  // --- chunks ---
  // A chunk without a stored bitmap: all free. It must not overlap another.
  void add_chunk(ChunkIndex chunk, BlockIndex first_block, std::uint32_t blocks);
  // A chunk with its stored bitmap: set blocks are owned.
  Result<void> load(ChunkIndex chunk, BlockIndex first_block, std::uint32_t blocks,
                    std::span<const std::byte> stored_bitmap);
  // The lane will run out: ask for a chunk now, while writes still succeed.
  bool wants_chunk() const;
  // Chunks that are wholly free, in device order.
  std::vector<ChunkIndex> empty_chunks() const;
  // False, and nothing changes, when the chunk is not wholly free or its blocks are promised. Its
  // stored bitmap is all free or absent; the key may be deleted with the next commit.
  bool remove_chunk(ChunkIndex chunk);

  // --- promises ---
  // Promises free blocks; false when there are not enough for this purpose.
  bool reserve(std::uint64_t blocks, Purpose purpose);
  void unreserve(std::uint64_t blocks);
  // True when a refused reserve() would succeed after the whole quarantine is released: make a
  // commit durable and try again, rather than report a full device.
  bool fits_after_release(std::uint64_t blocks, Purpose purpose) const;

  // --- allocating ---
  // One run if a bounded search finds one, at or soon after `hint` if it can be; else pieces, the
  // longer ones first. Microseconds on a fragmented lane, as chunks_scanned_max bounds it.
  // Uses up a promise of `blocks`, which must exist.
  DeviceRuns allocate_reserved(std::uint32_t blocks, std::optional<BlockIndex> hint);
  // The same without a promise. Error: no_space.
  Result<DeviceRuns> allocate(std::uint32_t blocks, std::optional<BlockIndex> hint,
                              Purpose purpose);
  // For replay: a durable record names the run. Errors: double_owner, outside_lane, no_space (the
  // blocks are promised).
  Result<void> mark_used(DeviceRun run);
  // Pending blocks that a leaf of the next commit names (P1). Anything else is a bug.
  void commit_allocation(DeviceRun run);
  // Pending blocks that nothing will ever name (P4): free at once. Anything else is a bug.
  void give_back(DeviceRun run);

  // --- freeing ---
  // Whether a leaf may name the run: all of its blocks are owned.
  bool owns(DeviceRun run) const;
  // Owned or pending blocks that commit `ticket` no longer names (P2). Tickets never fall, and that
  // of a commit that was released is not used again. Errors: not_owned, outside_lane: the index
  // names blocks that it does not own; alarm, free nothing.
  Result<void> free_to_quarantine(DeviceRun run, CommitTicket ticket);
  // Commit `upto` is durable (P3). Returns how many blocks became free.
  std::uint64_t release_quarantine(CommitTicket upto);

  // --- persistence and accounts ---
  // Values of the chunks whose owned blocks changed since the last call, in device order.
  std::vector<ChangedChunk> changed_chunks();
  // The batch with this chunk's value was not made: it is changed still.
  void keep_changed(ChunkIndex chunk);

  AllocatorAccount account() const;
  // Counts everything again. Error: accounting_broken, with what differs.
  Result<void> validate() const;

 private:
  struct Chunk;
  // The part of a run that is in one chunk.
  struct Piece {
    std::uint32_t slot = 0;
    std::uint32_t start = 0;
    std::uint32_t blocks = 0;
  };
  using Pieces = absl::InlinedVector<Piece, 2>;
  struct Quarantined {
    CommitTicket ticket;
    DeviceRun run;
  };
  struct Found {
    std::uint32_t slot = 0;
    std::uint32_t start = 0;
  };

  void insert(Chunk chunk);
  void chunks_moved();
  std::optional<std::uint32_t> slot_of(BlockIndex block) const;
  std::optional<std::uint32_t> slot_of(ChunkIndex chunk) const;
  std::optional<Pieces> pieces_of(DeviceRun run) const;
  bool all_pending(const Pieces& pieces) const;
  std::uint64_t reserve_pool() const;
  std::uint64_t available(Purpose purpose) const;
  std::optional<Found> find(std::uint32_t want, std::optional<BlockIndex> hint);
  std::optional<Found> scan(std::uint32_t slot, std::uint32_t from, std::uint32_t want);
  void take(std::uint32_t slot, std::uint32_t start, std::uint32_t blocks);
  void make_free(std::uint32_t slot, std::uint32_t start, std::uint32_t blocks);

  LaneId lane_;
  AllocatorOptions options_;
  std::vector<Chunk> chunks_;  // in device order; a slot is a position in it
  BlockBitmap full_;           // slots of chunks without a free block
  std::uint32_t cursor_slot_ = 0;
  std::deque<Quarantined> quarantine_;
  CommitTicket newest_ticket_;
  CommitTicket released_upto_;
  AllocatorAccount account_;  // without the reserve pool
};

}  // namespace sarsen
