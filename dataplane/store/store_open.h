// Formatting and opening: from bytes on a device to a StoreState that may serve.
#pragma once

#include "dataplane/store/store_state.h"

namespace sarsen {

// What the index says of the journal, read at open.
struct IndexRoots {
  SegmentGeneration live_from;
  std::vector<LaneSequence> applied;  // by lane
};

// Where the superblock says that the device table is, and how the database is opened.
TableGeometry table_geometry(const Superblock& superblock);
MetadataDbOptions db_options(const Superblock& superblock, const StoreLimits& limits);
// On a thread of the pool. Error: corrupt_index, the database's.
Result<IndexRoots> read_index_roots(const MetadataDb& db, const Superblock& superblock);

Task<Result<Superblock>> format_store(Env& env, Disk& disk, BlockingDisk& blocking_disk,
                                      FormatOptions options);

// Superblock, device table, RocksDB, allocators. Raises the start count durably (I-SUPER-3).
Task<Result<IndexRoots>> open_index(StoreState& state);
// Reads the journal, fills overlay, segments and pool. `ends` is what must be appended before
// anything is reported; `tight` says that not every pending block could be promised a home.
struct Replayed {
  std::vector<StreamEnd> ends;
  std::vector<RecoveredRecord> unproven;  // to be written again before `ends`
  bool tight = false;
};
Task<Result<Replayed>> replay_journal(StoreState& state, IndexRoots roots);

}  // namespace sarsen
