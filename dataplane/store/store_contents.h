// StoreContents: the parts of a store that nobody has open, for tools that look at it.
//
// Opening the table heals its mirrors and opening RocksDB writes a new MANIFEST: give it a disk
// whose writes may go nowhere (an overlay in memory), never the device of somebody else's store.
//
// Owns     table, files, database; destroyed in reverse.   Borrows: the disks, which outlive it.
// Errors   The superblock's are the call's. What else cannot be opened leaves its part empty and
//          says why in `damage`: a tool shows the rest.
#pragma once

#include <memory>
#include <optional>

#include "dataplane/store/store_open.h"

namespace sarsen {

struct StoreContents {
  SuperblockReading reading;
  std::unique_ptr<DeviceTable> table;
  TableState table_found;  // as it was before RocksDB opened its files and wrote new ones
  TableStats table_stats_found;
  std::unique_ptr<MetadataFiles> files;
  std::unique_ptr<MetadataDb> db;
  IndexRoots roots;             // when `db` is there and `damage` is not
  std::optional<Error> damage;  // of the first part that could not be opened
};

Task<Result<StoreContents>> read_store_contents(Env& env, Disk& disk, BlockingDisk& blocking_disk);

}  // namespace sarsen
