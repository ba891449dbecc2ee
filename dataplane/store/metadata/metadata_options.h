// RocksDB's options for MetadataDb, each with its reason.
#pragma once

#include <memory>

#include <rocksdb/options.h>

#include "dataplane/store/metadata/metadata_db.h"

namespace sarsen {

rocksdb::DBOptions database_options(const MetadataDbOptions& options, rocksdb::Env* env);
rocksdb::ColumnFamilyOptions family_options(MetadataFamily family, const MetadataCache& cache,
                                            const CompactionLimits& limits);

}  // namespace sarsen
