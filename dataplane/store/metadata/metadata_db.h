// The database in the metadata zone of a device: index, allocator state and other metadata of a
// store. RocksDB without a log of its own: the store's journal is the log (rule S3).
//
// Lifecycle   open() (with `create` once, at format), use, close() or destroy. Unflushed writes are
//             gone after close(), as after a crash.
// Threads     thread-safe; every call blocks and may do I/O. flush() and compact_step() exclude
//             each other. RocksDB's own flush thread runs only while flush() waits for it, merging
//             runs on the caller's thread: in the simulator one thread runs at a time.
// Borrows     the files, which outlive it; a cursor must not outlive its database.
// Durability  flush() is the only thing that makes writes durable: when it returns, every write
//             that returned before it was called survives power loss, over all families at once. A
//             crash at any point gives the state of some flush, never a part of one.
// Memory      unflushed_bytes_max (twice that while flush() runs beside writes), the shared cache,
//             and about 1 MiB. A write beyond unflushed_bytes_max flushes first.
// Space       flush() and compact_step() take what they need from the device table before they
//             start: `no_space` leaves everything as it was. The metadata reserve of the table must
//             cover one merge of everything beside level 0: whole_merge_bytes_max, and the larger
//             of that again and level0_files_min flushes.
// Errors      corrupt: a block is bad; everything else still works, damaged_ranges() tells which
//             keys may be lost, rebuild_metadata_db() leaves them behind. device_failed from
//             flush(): the database takes no more writes (reads go on) until it is opened anew.
//             no_space, stopped.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/base/result.h"
#include "dataplane/store/metadata/compaction_policy.h"
#include "dataplane/store/metadata/metadata_error.h"
#include "dataplane/store/metadata/metadata_files.h"

namespace rocksdb {
class Cache;
class Iterator;
class WriteBatch;
}  // namespace rocksdb

namespace sarsen {

enum class MetadataFamily : std::uint8_t { index, allocator, meta };
inline constexpr std::size_t kMetadataFamilies = 3;

// Blocks, indexes and filters of table files. One for all devices of a process. What it evicts
// depends, now and then, on what malloc rounds a size up to: a run that must repeat takes none, or
// one that never fills.
using MetadataCache = std::shared_ptr<rocksdb::Cache>;
// One segment, evicted strictly in order of use.
MetadataCache make_metadata_cache(std::uint64_t bytes);

struct MetadataDbOptions {
  bool create = false;
  std::string name = "db";                // of its files: "NAME/CURRENT"
  MetadataCache cache = {};               // made with cache_bytes when empty
  std::uint64_t cache_bytes = 32 * kMiB;  // 0 for none: then indexes stay in memory, blocks do not
  std::uint64_t unflushed_bytes_max = 64 * kMiB;
  // A new MANIFEST is begun beyond this. It is read whole at each opening, and each flush takes a
  // block of it, twice: some 27 bytes of the device for each byte. Must be well above what lists
  // all files once (some 150 bytes each).
  std::uint64_t manifest_bytes_max = 128 * kKiB;
  CompactionLimits compaction = {};
  std::function<void(std::string_view)> log = {};  // RocksDB's warnings
};

// Of a database that a rebuild was writing (metadata_rebuild.h). One that was left unfinished goes
// away when the database without the suffix is opened.
inline constexpr const char* kUnfinishedSuffix = ".new";

// Writes that take effect together. Keys are ordered bytewise.
class MetadataBatch {
 public:
  MetadataBatch();
  ~MetadataBatch();
  MetadataBatch(MetadataBatch&&) noexcept;
  MetadataBatch& operator=(MetadataBatch&&) noexcept;

  void put(MetadataFamily family, std::string_view key, std::string_view value);
  void remove(MetadataFamily family, std::string_view key);
  // Keys in [begin, end).
  void remove_range(MetadataFamily family, std::string_view begin, std::string_view end);
  void clear();
  bool empty() const { return operations_.empty(); }

 private:
  friend class MetadataDb;
  enum class Kind : std::uint8_t { put, remove, remove_range };
  struct Operation {
    Kind kind;
    MetadataFamily family;
    std::string key;
    std::string value;  // or the end of the range
  };
  std::vector<Operation> operations_;
  std::uint64_t bytes_ = 0;
};

// Walks a key range in order, over one consistent state. Not thread-safe.
class MetadataCursor {
 public:
  ~MetadataCursor();
  MetadataCursor(MetadataCursor&&) noexcept;
  MetadataCursor& operator=(MetadataCursor&&) = delete;

  // False at the end, or after an error: ask status().
  bool valid() const;
  std::string_view key() const;    // until next() or seek()
  std::string_view value() const;  // until next() or seek()
  void next();
  // To the first key at or after `key`, within the range of the cursor.
  void seek(std::string_view key);
  // Error: corrupt, when the walk met a bad block; go on behind it with a new cursor.
  Result<void> status() const;

 private:
  friend class MetadataDb;
  struct State;
  explicit MetadataCursor(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

struct CompactStep {
  bool worked = false;
  MetadataFamily family = MetadataFamily::index;
  std::uint64_t bytes_in = 0;
};

// Keys whose newest value may be lost lie in [first, last].
struct DamagedRange {
  MetadataFamily family = MetadataFamily::index;
  std::string file;
  std::string first;
  std::string last;
};

struct MetadataDbStats {
  std::uint64_t unflushed_bytes = 0;
  std::uint64_t table_bytes = 0;   // of all families, on the device
  std::uint32_t level0_files = 0;  // of the index
  std::uint64_t flushes = 0;
  std::uint64_t compactions = 0;
};

class MetadataDb {
 public:
  // Errors: not_found (without `create`), corrupt, device_failed, no_space.
  static Result<std::unique_ptr<MetadataDb>> open(MetadataFiles& files, MetadataDbOptions options);
  ~MetadataDb();
  MetadataDb(const MetadataDb&) = delete;
  MetadataDb& operator=(const MetadataDb&) = delete;

  Result<void> write(const MetadataBatch& batch);
  // Nothing when there is no such key. Errors: corrupt, device_failed.
  Result<std::optional<std::string>> get(MetadataFamily family, std::string_view key) const;
  std::vector<Result<std::optional<std::string>>> multi_get(
      MetadataFamily family, std::span<const std::string_view> keys) const;
  // Keys in [begin, end); no bound when `end` is empty.
  MetadataCursor cursor(MetadataFamily family, std::string_view begin, std::string_view end) const;
  MetadataCursor prefix_cursor(MetadataFamily family, std::string_view prefix) const;

  Result<void> flush();
  // Merges some table files, if that is worth it, and gives chunks back that became free. `worked`
  // says whether to call again. An error leaves the files as they were.
  Result<CompactStep> compact_step();

  // Looks through the table files in which bad blocks were met, or through all.
  enum class Look : std::uint8_t { suspects, everything };
  Result<std::vector<DamagedRange>> damaged_ranges(Look look) const;
  // Flushed keys in [first, last] of which some good block knows, deleted ones included, sorted.
  std::vector<std::string> readable_keys(MetadataFamily family, const std::string& first,
                                         const std::string& last) const;

  MetadataDbStats stats() const;
  // Idempotent. Later calls answer `stopped`.
  void close();

 private:
  struct State;
  explicit MetadataDb(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace sarsen
