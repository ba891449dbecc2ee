#include "dataplane/store/metadata/metadata_options.h"

#include <rocksdb/cache.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/listener.h>
#include <rocksdb/memory_allocator.h>
#include <rocksdb/table.h>

#include "dataplane/store/metadata/metadata_env.h"

namespace sarsen {
namespace {

// RocksDB never decides by itself to flush a memtable of this size; MetadataDb flushes long before.
constexpr std::size_t kNeverFlushBytes = 1ull << 30;
constexpr std::size_t kArenaBytes = 256 * 1024;
constexpr std::size_t kTableBlockBytes = 8 * 1024;
constexpr double kBloomBitsPerKey = 10;
constexpr std::size_t kReadAheadBytes = 256 * 1024;

// A merge that fails changes nothing and its caller is told; it must not make the database refuse
// writes. Any other failure (of a flush) must, until the database is opened anew: without
// paranoid_checks RocksDB would try again for ever and never answer.
class ErrorFilter final : public rocksdb::EventListener {
 public:
  void OnBackgroundError(rocksdb::BackgroundErrorReason reason, rocksdb::Status* error) override {
    if (reason == rocksdb::BackgroundErrorReason::kCompaction) {
      *error = rocksdb::Status::OK();
    } else {
      *error = rocksdb::Status(*error, rocksdb::Status::Severity::kFatalError);
    }
  }
  // Nobody would end a recovery begun here, and closing would wait for it.
  void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason, rocksdb::Status,
                            bool* auto_recovery) override {
    *auto_recovery = false;
  }
};

// Charges the cache what was asked for: what malloc rounds it up to differs between runs.
class ExactAllocator final : public rocksdb::MemoryAllocator {
 public:
  const char* Name() const override { return "SarsenExactAllocator"; }
  void* Allocate(size_t size) override { return ::operator new(size); }
  void Deallocate(void* memory) override { ::operator delete(memory); }
  size_t UsableSize(void*, size_t allocation_size) const override { return allocation_size; }
};

}  // namespace

rocksdb::DBOptions database_options(const MetadataDbOptions& options, rocksdb::Env* env) {
  rocksdb::DBOptions db;
  db.env = env;
  db.info_log = make_metadata_logger(options.log);
  db.info_log_level = rocksdb::InfoLogLevel::WARN_LEVEL;
  db.listeners.push_back(std::make_shared<ErrorFilter>());
  db.create_if_missing = options.create;
  db.create_missing_column_families = options.create;

  // A table file whose index is bad is damage (MetadataDb::damaged_ranges), no reason to stay shut.
  db.paranoid_checks = false;

  // Durability: the families are flushed together or not at all, and only when asked.
  db.atomic_flush = true;
  db.avoid_flush_during_shutdown = true;
  db.max_manifest_file_size = options.manifest_bytes_max;

  // One thread at a time, none of them by itself: runs repeat.
  db.max_background_jobs = 2;
  db.max_subcompactions = 1;
  db.max_file_opening_threads = 1;
  db.allow_concurrent_memtable_write = false;
  db.enable_write_thread_adaptive_yield = false;
  db.stats_dump_period_sec = 0;
  db.stats_persist_period_sec = 0;
  db.max_bgerror_resume_count = 0;
  db.delete_obsolete_files_period_micros = 1ull << 60;

  // Opening is quick: nothing is read that is not needed.
  db.skip_stats_update_on_db_open = true;
  db.skip_checking_sst_file_sizes_on_db_open = true;
  db.max_open_files = 4096;
  db.compaction_readahead_size = kReadAheadBytes;
  return db;
}

rocksdb::ColumnFamilyOptions family_options(MetadataFamily family, const MetadataCache& cache,
                                            const CompactionLimits& limits) {
  rocksdb::ColumnFamilyOptions cf;
  cf.compression = rocksdb::kNoCompression;
  cf.bottommost_compression = rocksdb::kNoCompression;
  cf.write_buffer_size = kNeverFlushBytes;
  cf.arena_block_size = kArenaBytes;
  cf.max_write_buffer_number = 4;

  // Merging is ours (compaction_policy.h).
  cf.disable_auto_compactions = true;
  cf.compaction_style = rocksdb::kCompactionStyleLevel;
  cf.num_levels = kCompactionLevels;
  cf.level_compaction_dynamic_level_bytes = false;
  cf.target_file_size_base = limits.table_file_bytes;
  cf.level0_slowdown_writes_trigger = 1 << 30;
  cf.level0_stop_writes_trigger = 1 << 30;
  cf.soft_pending_compaction_bytes_limit = 0;
  cf.hard_pending_compaction_bytes_limit = 0;
  cf.max_compaction_bytes = 1ull << 50;
  cf.ttl = 0;
  cf.periodic_compaction_seconds = 0;
  // Almost every key that is looked for exists, so the bottom level needs no filter.
  cf.optimize_filters_for_hits = family == MetadataFamily::index;

  rocksdb::BlockBasedTableOptions table;
  table.block_cache = cache;
  table.no_block_cache = cache == nullptr;
  table.block_size = kTableBlockBytes;
  table.checksum = rocksdb::kCRC32c;
  table.format_version = 5;
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(kBloomBitsPerKey));
  table.whole_key_filtering = true;
  table.cache_index_and_filter_blocks = cache != nullptr;
  table.cache_index_and_filter_blocks_with_high_priority = true;
  table.pin_l0_filter_and_index_blocks_in_cache = cache != nullptr;
  cf.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return cf;
}

MetadataCache make_metadata_cache(std::uint64_t bytes) {
  rocksdb::LRUCacheOptions options;
  options.memory_allocator = std::make_shared<ExactAllocator>();
  options.capacity = bytes;
  options.num_shard_bits = 0;
  options.strict_capacity_limit = false;
  options.high_pri_pool_ratio = 0.5;
  return rocksdb::NewLRUCache(options);
}

}  // namespace sarsen
