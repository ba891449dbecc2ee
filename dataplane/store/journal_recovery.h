// Reads the journal of a device after a stop of any kind and says what it holds.
//
// Nothing is written here: the caller flushes the device and appends a `stream_ends` record before
// it reports anything (rule S1).
//
// Invariants
//   I-JOURNAL-3  A record below a stream's durable bound is accepted, whatever its state: bad data
//                is found by its checksum and is *corrupt*; an unreadable header is rebuilt from
//                the echo in the next group, or its range of LSNs is reported as lost. Never
//                absent.
//   I-JOURNAL-4  A stream is cut at its first group at or beyond the durable bound that is not
//   whole.
//                Nothing beyond the cut is accepted: it was never acknowledged (prefix rule of
//                JournalWriter).
//   I-JOURNAL-5  A cut made by an earlier recovery and recorded in `stream_ends` is exact and
//   final.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "dataplane/runtime/env.h"
#include "dataplane/store/journal_format.h"
#include "dataplane/store/superblock.h"

namespace sarsen {

struct RecoveredRecord {
  JournalRecord record;
  JournalLsn lsn;
  SegmentGeneration generation;
  // `write`: the device block where its data starts. Meaningless when payload_lost.
  BlockIndex payload;
  // The header was lost and the echo does not tell where the data is: the blocks are corrupt.
  bool payload_lost = false;
  // Beyond the durable bound and whole: it was read, which does not prove that it is on stable
  // media.
  bool unproven = false;
};

// Acknowledged records of a stream whose identities no group names any more.
struct LostRecords {
  std::uint64_t run = 0;
  std::uint32_t stream = 0;
  JournalLsn first;
  JournalLsn end;
};

struct RecoveredSegment {
  std::uint32_t segment = 0;
  SegmentGeneration generation;
};

struct RecoveredJournal {
  // In the order of their streams, older runs first. Order between lanes means nothing; within a
  // lane, lane_sequence decides.
  std::vector<RecoveredRecord> records;
  std::vector<RecoveredSegment> segments;  // that hold live groups, by generation
  // For the caller's `stream_ends` record: where the proven part of each stream ends. The caller
  // writes unproven records again, and only then the ends.
  std::vector<StreamEnd> ends;
  std::vector<LostRecords> lost;
  std::uint64_t groups = 0;
  std::uint64_t headers_rebuilt = 0;      // from echoes
  std::uint64_t records_rolled_back = 0;  // beyond a cut; never acknowledged as far as is known
  std::uint64_t blocks_unreadable = 0;
};

// Groups of generations below `live_from` belong to freed segments and are ignored. Records for
// which `applied` is true (the index holds them durably) are left out of the result.
Task<Result<RecoveredJournal>> recover_journal(Env& env, Disk& disk, Superblock superblock,
                                               SegmentGeneration live_from,
                                               std::function<bool(LaneId, LaneSequence)> applied);

}  // namespace sarsen
