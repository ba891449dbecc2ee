// Appends records to the journal stream of one shard and tells when they are durable.
//
// Records that arrive while the device is busy share one group: one header, one device write.
//
// Lifecycle  start() begins; stop() refuses new appends, waits for those that run, seals, and
// joins. Shard      One stream per shard and run. Owns       Group buffers in flight.   Borrows:
// Env, Disk, SegmentPool (outlive it). Bounded by JournalLimits; callers bound how many appends
// wait (each holds its own data). Errors     device_failed, for good, after the first write that
// failed; stopping.
//
// Invariants
//   I-JOURNAL-7  append() succeeds only when the record's group, and every group before it in the
//                stream, is on stable media.
//   I-JOURNAL-8  A header's durable_upto names only records for which that held when it was built.
//   I-JOURNAL-9  After a failed write nothing of the stream is acknowledged any more: what reached
//                the media is unknown.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "dataplane/runtime/condition.h"
#include "dataplane/runtime/env.h"
#include "dataplane/runtime/event.h"
#include "dataplane/runtime/gate.h"
#include "dataplane/runtime/scope.h"
#include "dataplane/store/journal_format.h"
#include "dataplane/store/segment_pool.h"
#include "dataplane/store/superblock.h"

namespace sarsen {

struct JournalLimits {
  std::uint32_t groups_in_flight_max = 4;
  std::uint32_t group_records_max = 64;
  std::uint32_t group_payload_blocks_max = 256;  // 1 MiB
  // A segment is closed when its records name this many blocks whose data is elsewhere: so the
  // journal bounds what a replay and a batch have to do, however large the writes were.
  std::uint32_t segment_blocks_named_max = 32768;  // 128 MiB
  // A stream that was idle this long writes a seal, so that rot of its last group is told from a
  // torn tail (rule S1).
  Duration seal_after = milliseconds(10);
};

struct JournalReceipt {
  JournalLsn lsn;
  SegmentGeneration generation;
  BlockIndex payload;  // `write`: the device block where its data starts
};

// Told of each record when it is durable, in the order of the stream, before its append() returns
// and before settled_below() passes its segment. Must not wait.
class JournalObserver {
 public:
  virtual void on_durable(JournalRecord record, const JournalReceipt& receipt,
                          std::uint64_t tag) = 0;

 protected:
  ~JournalObserver() = default;
};

class JournalWriter {
 public:
  JournalWriter(Env& env, Disk& disk, SegmentPool& pool, Superblock superblock,
                JournalLimits limits, JournalObserver* observer);
  JournalWriter(const JournalWriter&) = delete;
  ~JournalWriter();

  void start();
  // Order of durability within the stream is the order of the calls. `data` (for `write`: whole
  // blocks) stays valid until it completes. `tag` goes to the observer.
  Task<Result<JournalReceipt>> append(JournalRecord record, std::span<const std::byte> data,
                                      std::uint64_t tag = 0);
  // Closes the open segment when it holds anything, so that it can be destaged.
  Task<Result<void>> roll();
  Task<void> stop();
  // The store takes no more writes: all that wait fail, and later ones.
  void fail_writes(Error error) {
    if (!failure_) fail_all(std::move(error));
  }

  // Every record of a segment below this generation is durable and its segment is closed.
  SegmentGeneration settled_below() const;
  // The durable_upto that is itself on stable media: what a recovery will know.
  JournalLsn recorded_durable_upto() const { return recorded_durable_upto_; }
  // There is an open segment with groups in it: roll() would close it.
  bool can_roll() const { return open_ && group_index_ > 0; }
  const std::optional<Error>& failure() const { return failure_; }
  std::uint64_t bytes_written() const { return bytes_written_; }
  std::uint64_t groups_written() const { return groups_written_; }

 private:
  struct Pending;  // an append that waits for its group or for its group to be durable
  struct Group;    // a group being written
  struct Selection {
    std::uint32_t count = 0;
    std::uint32_t record_bytes = 0;
    std::uint32_t payload_blocks = 0;
    std::uint32_t header_blocks = 1;
  };

  Task<void> pump();
  Task<void> seal_when_idle();
  Task<void> write_group(Group* submitted);
  Task<Result<void>> open_segment();
  bool work_is_ready() const;
  bool segment_has_room(const Selection& selection) const;
  Selection select(std::uint32_t blocks_available) const;
  Result<void> submit_group(const Selection& selection);
  void build(Group& group, const Selection& selection);
  void complete_prefix();
  void fail_all(Error error);

  Env& env_;
  Disk& disk_;
  SegmentPool& pool_;
  JournalObserver* const observer_;
  const Superblock superblock_;
  const JournalLimits limits_;
  const std::uint32_t segment_blocks_;

  std::optional<SegmentGrant> open_;
  std::uint32_t position_ = 0;      // blocks used of the open segment
  std::uint32_t group_index_ = 0;   // of the next group in it
  std::uint64_t blocks_named_ = 0;  // by its records that bring no data
  SegmentGeneration previous_generation_;
  std::uint32_t previous_group_count_ = 0;
  std::uint32_t previous_checksum_ = 0;
  JournalLsn segment_first_lsn_;
  JournalLsn previous_segment_first_lsn_;
  std::vector<JournalRecord> echo_;  // the records of the group before the next

  JournalLsn next_lsn_{1};
  JournalLsn durable_upto_{1};
  JournalLsn recorded_durable_upto_{1};
  std::optional<Error> failure_;
  bool stopping_ = false;
  bool seal_wanted_ = false;
  bool roll_wanted_ = false;
  std::uint64_t bytes_written_ = 0;
  std::uint64_t groups_written_ = 0;
  std::uint64_t appended_ = 0;

  IntrusiveList<Pending> pending_;
  std::deque<std::unique_ptr<Group>> in_flight_;
  Condition work_;
  Condition rolled_;
  Event active_;
  Gate gate_;
  Scope scope_;
};

}  // namespace sarsen
