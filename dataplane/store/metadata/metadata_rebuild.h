// Leaves bad blocks behind: copies what can be read of a damaged database into a new one.
//
// A merge that meets a bad block fails, so a damaged family is no longer merged until this is done.
// The caller then restores the keys of `lost` from peers, or reports them.
#pragma once

#include <cstdint>
#include <vector>

#include "dataplane/store/metadata/metadata_db.h"

namespace sarsen {

struct RebuildReport {
  std::uint64_t entries = 0;
  // Keys in these ranges that are not in the new database: their newest value could not be read.
  std::vector<DamagedRange> lost;
};

// No database of these files may be open. Blocks for as long as it takes to read and write all of
// it. The new database takes the old one's place in one durable step at the end: power loss leaves
// either. Errors: as MetadataDb::open() and flush(); no_space needs as much room again.
Result<RebuildReport> rebuild_metadata_db(MetadataFiles& files, const MetadataDbOptions& options);

}  // namespace sarsen
