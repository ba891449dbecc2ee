// A metadata database with small limits, so that files, levels and regions wrap in every test.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "dataplane/store/metadata/metadata_db.h"
#include "tests/unit/store/metadata/zone_fixture.h"

namespace sarsen::test {

inline MetadataDbOptions small_options() {
  MetadataDbOptions options;
  options.cache_bytes = 1 * kMiB;
  options.unflushed_bytes_max = 256 * kKiB;
  options.compaction.level0_files_min = 3;
  options.compaction.level0_files_max = 4;
  options.compaction.whole_merge_bytes_max = 64 * kKiB;
  options.compaction.table_file_bytes = 32 * kKiB;
  return options;
}

// A process that has the database open; parts die in the right order.
struct DbProcess {
  Zone zone;
  std::unique_ptr<MetadataDb> db;

  DbProcess() = default;
  DbProcess(DbProcess&&) = default;
  DbProcess& operator=(DbProcess&& other) noexcept {
    db = std::move(other.db);
    zone.files = std::move(other.zone.files);
    zone.table = std::move(other.zone.table);
    return *this;
  }

  static Result<DbProcess> start(BlockingDisk& disk, const TableGeometry& geometry,
                                 MetadataDbOptions options) {
    auto zone = Zone::open(disk, geometry);
    if (!zone) return fail(std::move(zone).error());
    DbProcess process;
    process.zone = *std::move(zone);
    auto db = MetadataDb::open(*process.zone.files, std::move(options));
    if (!db) return fail(std::move(db).error());
    process.db = *std::move(db);
    return process;
  }
};

inline std::string test_key(int key) {
  std::string text(32, '.');
  std::snprintf(text.data(), text.size(), "key%06d", key);
  return text;
}

// Values of one key grow with the round, so that "at least as new" can be compared.
inline std::string test_value(int key, int round) {
  std::string text(400, 'v');
  std::snprintf(text.data(), 40, "%06d of %06d", round, key);
  return text;
}

}  // namespace sarsen::test
