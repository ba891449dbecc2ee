// Finds which keys of a table file may be lost to bad blocks.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "dataplane/store/metadata/metadata_db.h"

namespace rocksdb {
struct Options;
}

namespace sarsen {

// `file` says the file and the keys it should hold. Nothing when every block is good.
std::optional<DamagedRange> examine_table_file(const rocksdb::Options& options,
                                               const std::string& path, DamagedRange file);

// Adds the keys in [first, last] that good blocks of the file hold. What lies between two bad
// blocks that are close together may be left out.
void collect_keys(const rocksdb::Options& options, const std::string& path,
                  const std::string& first, const std::string& last, std::set<std::string>& keys);

}  // namespace sarsen
