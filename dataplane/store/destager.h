// Destager: moves what is in the journal home, commits the index, frees segments (rule S3).
//
// One batch: wait out old readers → plan → read and verify the journal → write home → flush the
// device → one WriteBatch with leaves, free space and applied sequences. A checkpoint: flush
// RocksDB → only then are the segments and the quarantined blocks of its batches free. One batch
// and one checkpoint run side by side; a checkpoint covers the batches that were published before
// it.
//
// Lifecycle  start(); stop() ends after the batch that runs.
// Shard      One.   Borrows StoreState.
// Bounded by limits.destage_segments_max segments in memory at a time.
// Errors     After a failed write home or a failed commit the store takes no more writes
//            (StoreState::failure); what is acknowledged stays in the journal.
//
// Invariants
//   I-STORE-6  A batch becomes part of the index only when all of its home data is on stable media.
//   I-STORE-7  A segment or a quarantined block is reused only after the commit that stopped using
//   it
//              is durable and the readers that began before it are gone.
//   I-STORE-11 Nothing is written to or freed at a place that a leaf names and its lane does not
//              own: the index is damaged there, and what it had there is corrupt from then on.
//   I-STORE-8  Journal data that fails its checksum is never written home: its block becomes
//   corrupt.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "dataplane/runtime/periodic.h"
#include "dataplane/runtime/scope.h"
#include "dataplane/store/destage_plan.h"
#include "dataplane/store/store_state.h"

namespace sarsen {

class Destager {
 public:
  // `live_from`: the first generation whose records may be missing from the durable index.
  Destager(StoreState& state, SegmentGeneration live_from);

  void start();
  // Destages and checkpoints everything acknowledged before the call.
  Task<Result<void>> drain();
  // For recovery, before start() and without a journal: frees at least one segment; `everything`
  // moves all that is pending home.
  Task<Result<void>> make_room(bool everything);
  Task<void> stop();
  // While all kQuietUnits are held, no batch and no checkpoint runs.
  static constexpr std::uint64_t kQuietUnits = 2;
  Semaphore& quiet() { return quiet_; }

 private:
  // Blocks that are neighbours in the journal, and at home.
  struct Move {
    BlockIndex source;
    BlockIndex home;
    std::uint32_t blocks = 0;
  };
  // Journal data of a batch in memory.
  struct Pieces;
  // Moves, sorted by home, that wait for one of the writers.
  struct HomeRuns {
    std::span<const Move> left;
    bool failed = false;
  };
  // A leaf in its new version, and what changed beside it.
  struct NewLeaf {
    LeafKey key;
    LeafPointer leaf;
  };
  struct Batch {
    DestagePlan plan;
    std::vector<NewLeaf> leaves;
    std::vector<Move> moves;
    std::map<std::uint32_t, std::vector<FreedRun>> freed;  // by lane
    std::map<std::uint32_t, std::vector<DeviceRun>> adopted;
    std::map<std::uint32_t, std::vector<DeviceRun>> allocated;
    std::uint64_t blocks_corrupt = 0;
    std::deque<JournalRecord> lost;  // stand for what no record tells any more
  };

  Task<void> run_batches();
  Task<void> run_checkpoints();
  Task<void> note_end(Result<void> done);
  Task<void> look_if_idle();
  void stop_if_futile(const Result<void>& done);
  bool batch_is_due() const;
  bool checkpoint_is_due() const;
  bool roll_is_due() const;
  SegmentGeneration batch_end() const;

  Task<Result<void>> destage_batch(SegmentGeneration end);
  Task<Result<void>> try_batch(SegmentGeneration end);
  Task<Result<void>> carry_out(Batch* batch);
  void undo(Batch& batch);
  Task<Result<void>> checkpoint();
  Task<Result<void>> find_removed_leaves(DestagePlan* plan);
  Task<Result<void>> read_journal(const DestagePlan* plan, Pieces* pieces);
  Task<Result<void>> read_piece(BlockIndex start, std::uint32_t blocks, Pieces* pieces);
  Task<Result<void>> make_leaves(Batch* batch, const Pieces* pieces);
  Task<Result<std::vector<LeafPointer>>> leaves_around_damage(std::vector<LeafKey> keys);
  bool is_damaged(const LeafChange& change, const IndexLeaf& leaf) const;
  LeafChange without_damage(Batch& batch, const LeafChange& change, IndexLeaf& leaf);
  LeafChange all_others_lost(Batch& batch, const LeafChange& change);
  Task<Result<void>> promise_lost(DestagePlan* plan, const LeafChange* mended);
  // Where each block of a leaf goes that is moved.
  using Homes = std::array<BlockIndex, kLeafBlocks>;
  // A leaf on its way to its new version.
  struct LeafWork {
    LeafPointer old;                     // null: it cannot be read
    const LeafChange* change = nullptr;  // `mended`, when there is one
    std::optional<LeafChange> mended;
    std::optional<IndexLeaf> sound;  // instead of `old`, which is damaged
    Homes homes{};
  };
  Task<Result<void>> prepare_leaf(Batch* batch, const LeafChange* change, LeafWork* work);
  Result<Homes> homes_for(Batch& batch, const IndexLeaf& leaf, const LeafChange& change);
  static void change_leaf(Batch& batch, const LeafChange& change, IndexLeaf& leaf,
                          const Homes& homes, const Pieces& pieces);
  static void put_moved(Batch& batch, const LeafChange& change, const RunChange& run,
                        const Homes& homes, IndexLeaf& leaf, const Pieces& pieces);
  Task<Result<void>> write_homes(const Batch* batch, const Pieces* pieces);
  Task<Result<void>> write_next_homes(HomeRuns* runs, const Pieces* pieces);
  Task<Result<void>> write_home_run(std::span<const Move> moves, const Pieces* pieces);
  Task<Result<void>> commit(Batch* batch);
  void account(Batch& batch, CommitTicket ticket);
  Task<void> publish(Batch* batch);
  static void disown_adopted(Lane& lane, std::span<const DeviceRun> adopted);
  void free_superseded(Lane& lane, CommitTicket ticket);
  void free_or_alarm(Lane& lane, DeviceRun run, CommitTicket ticket);

  StoreState& state_;
  Semaphore quiet_;
  bool stopping_ = false;
  std::uint32_t drains_ = 0;
  bool idle_ = false;
  std::uint32_t futile_rounds_ = 0;
  std::optional<LaneId> short_of_homes_;  // why the last batch was given up
  CommitTicket last_ticket_;
  CommitTicket durable_ticket_;
  SegmentGeneration committed_live_from_;
  SegmentGeneration durable_live_from_;
  std::uint64_t groups_seen_ = 0;
  Periodic idle_watch_;
  Scope scope_;
};

}  // namespace sarsen
