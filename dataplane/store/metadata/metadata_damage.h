// Finds which keys of a table file may be lost to bad blocks.
#pragma once

#include <optional>
#include <string>

#include "dataplane/store/metadata/metadata_db.h"

namespace rocksdb {
struct Options;
}

namespace sarsen {

// `file` says the file and the keys it should hold. Nothing when every block is good.
std::optional<DamagedRange> examine_table_file(const rocksdb::Options& options,
                                               const std::string& path, DamagedRange file);

}  // namespace sarsen
