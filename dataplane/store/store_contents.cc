#include "dataplane/store/store_contents.h"

#include <utility>

namespace sarsen {
namespace {

// On a thread of the pool.
Result<void> open_metadata(StoreContents& contents, BlockingDisk& disk) {
  const Superblock& superblock = contents.reading.superblock;
  auto table = DeviceTable::open(disk, table_geometry(superblock));
  if (!table) return fail(table.error());
  contents.table = *std::move(table);
  contents.table_found = contents.table->state();
  contents.table_stats_found = contents.table->stats();
  contents.files = MetadataFiles::open(disk, *contents.table);
  auto db = MetadataDb::open(*contents.files, db_options(superblock, StoreLimits{}));
  if (!db) return fail(db.error());
  contents.db = *std::move(db);
  auto roots = read_index_roots(*contents.db, superblock);
  if (!roots) return fail(roots.error());
  contents.roots = *std::move(roots);
  return {};
}

}  // namespace

Task<Result<StoreContents>> read_store_contents(Env& env, Disk& disk, BlockingDisk& blocking_disk) {
  StoreContents contents;
  auto reading = co_await read_superblock(env, disk);
  if (!reading) co_return fail(reading.error());
  contents.reading = *std::move(reading);
  auto opened = co_await env.blocking.run([&] { return open_metadata(contents, blocking_disk); });
  if (!opened) contents.damage = opened.error();
  co_return contents;
}

}  // namespace sarsen
