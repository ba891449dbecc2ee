#include "dataplane/store/metadata/metadata_db.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <set>
#include <utility>

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/write_batch.h>

#include "dataplane/store/metadata/metadata_damage.h"
#include "dataplane/store/metadata/metadata_env.h"
#include "dataplane/store/metadata/metadata_file_system.h"
#include "dataplane/store/metadata/metadata_options.h"
#include "dataplane/store/metadata/metadata_status.h"

namespace sarsen {
namespace {

// What an entry takes in a memtable beside its key and value: node, lengths, sequence.
constexpr std::uint64_t kEntryOverheadBytes = 64;
// Space that a flush or merge needs beside the contents of its table files, in units: the last unit
// of each file, the MANIFEST and CURRENT and their successors, in two copies.
constexpr std::uint64_t kSpareUnits = 16;

// The family that RocksDB insists on having is `meta`.
constexpr std::array<const char*, kMetadataFamilies> kFamilyNames{"index", "allocator", "default"};

rocksdb::Slice slice(std::string_view text) {
  return {text.data(), text.size()};
}
std::string_view view(const rocksdb::Slice& slice) {
  return {slice.data(), slice.size()};
}

Unexpected closed() {
  return fail(make_error(MetadataError::stopped));
}

// The first key after every key that starts with `prefix`; empty when there is none.
std::string end_of_prefix(std::string_view prefix) {
  std::string end(prefix);
  while (!end.empty() && static_cast<unsigned char>(end.back()) == 0xff) end.pop_back();
  if (!end.empty()) end.back() = static_cast<char>(static_cast<unsigned char>(end.back()) + 1);
  return end;
}

FamilyShape shape_of(const rocksdb::ColumnFamilyMetaData& family) {
  FamilyShape shape(kCompactionLevels);
  for (const auto& level : family.levels) {
    for (const auto& file : level.files) {
      shape[static_cast<std::size_t>(level.level)].push_back(
          {file.relative_filename, file.size, file.smallestkey, file.largestkey});
    }
  }
  return shape;
}

}  // namespace

// ---------------------------------------------------------------------------------------- batch

MetadataBatch::MetadataBatch() = default;
MetadataBatch::~MetadataBatch() = default;
MetadataBatch::MetadataBatch(MetadataBatch&&) noexcept = default;
MetadataBatch& MetadataBatch::operator=(MetadataBatch&&) noexcept = default;

void MetadataBatch::put(MetadataFamily family, std::string_view key, std::string_view value) {
  operations_.push_back({Kind::put, family, std::string(key), std::string(value)});
  bytes_ += key.size() + value.size() + kEntryOverheadBytes;
}
void MetadataBatch::remove(MetadataFamily family, std::string_view key) {
  operations_.push_back({Kind::remove, family, std::string(key), {}});
  bytes_ += key.size() + kEntryOverheadBytes;
}
void MetadataBatch::remove_range(MetadataFamily family, std::string_view begin,
                                 std::string_view end) {
  operations_.push_back({Kind::remove_range, family, std::string(begin), std::string(end)});
  bytes_ += begin.size() + end.size() + kEntryOverheadBytes;
}
void MetadataBatch::clear() {
  operations_.clear();
  bytes_ = 0;
}

// --------------------------------------------------------------------------------------- cursor

struct MetadataCursor::State {
  std::string end;
  rocksdb::Slice end_slice;
  std::unique_ptr<rocksdb::Iterator> iterator;
};

MetadataCursor::MetadataCursor(std::unique_ptr<State> state) : state_(std::move(state)) {}
MetadataCursor::~MetadataCursor() = default;
MetadataCursor::MetadataCursor(MetadataCursor&&) noexcept = default;

bool MetadataCursor::valid() const {
  return state_->iterator && state_->iterator->Valid();
}
std::string_view MetadataCursor::key() const {
  return view(state_->iterator->key());
}
std::string_view MetadataCursor::value() const {
  return view(state_->iterator->value());
}
void MetadataCursor::next() {
  state_->iterator->Next();
}
void MetadataCursor::seek(std::string_view key) {
  if (state_->iterator) state_->iterator->Seek(slice(key));
}
Result<void> MetadataCursor::status() const {
  if (!state_->iterator) return closed();
  return result_of(state_->iterator->status());
}

// ------------------------------------------------------------------------------------- database

struct MetadataDb::State {
  State(MetadataFiles& metadata_files, MetadataDbOptions db_options)
      : files(metadata_files), options(std::move(db_options)) {
    if (!options.cache && options.cache_bytes > 0) {
      options.cache = make_metadata_cache(options.cache_bytes);
    }
    env = make_metadata_env(make_metadata_file_system(files), "sarsen-metadata");
  }

  Result<void> open();
  Result<void> flush_locked();
  Result<void> merge(MetadataFamily family, const CompactionPick& pick);
  rocksdb::Options table_options(MetadataFamily family) const;
  std::uint64_t spare_bytes() const { return kSpareUnits * files.unit_bytes(); }
  rocksdb::ColumnFamilyHandle* handle(MetadataFamily family) const {
    return handles[static_cast<std::size_t>(family)];
  }
  rocksdb::ColumnFamilyMetaData shape(MetadataFamily family) const {
    rocksdb::ColumnFamilyMetaData shape;
    db->GetColumnFamilyMetaData(handle(family), &shape);
    return shape;
  }
  bool has_file(MetadataFamily family, const std::string& name) const {
    const rocksdb::ColumnFamilyMetaData now = shape(family);
    return std::ranges::any_of(now.levels, [&name](const auto& level) {
      return std::ranges::any_of(
          level.files, [&name](const auto& file) { return file.relative_filename == name; });
    });
  }

  MetadataFiles& files;
  MetadataDbOptions options;
  std::unique_ptr<rocksdb::Env> env;  // outlives db
  std::unique_ptr<rocksdb::DB> db;
  std::vector<rocksdb::ColumnFamilyHandle*> handles;

  std::mutex work_mutex;  // flush() and compact_step()
  std::atomic<std::uint64_t> unflushed_bytes{0};
  std::atomic<std::uint64_t> flushes{0};
  std::atomic<std::uint64_t> compactions{0};
};

MetadataDb::MetadataDb(std::unique_ptr<State> state) : state_(std::move(state)) {}
MetadataDb::~MetadataDb() {
  close();
}

Result<void> MetadataDb::State::open() {
  std::vector<rocksdb::ColumnFamilyDescriptor> families;
  for (std::size_t i = 0; i < kMetadataFamilies; ++i) {
    families.emplace_back(kFamilyNames[i], family_options(static_cast<MetadataFamily>(i),
                                                          options.cache, options.compaction));
  }
  rocksdb::DB* opened = nullptr;
  const auto status = rocksdb::DB::Open(database_options(options, env.get()), options.name,
                                        families, &handles, &opened);
  db.reset(opened);
  return result_of(status);
}

namespace {

// Each opening writes a manifest and an options file before it is done; openings that failed leave
// theirs, and a crash loop would fill the metadata zone with them until no opening has room.
Result<void> sweep_failed_openings(MetadataFiles& files, const std::string& folder) {
  auto reader = files.read(folder + "CURRENT");
  if (!reader) return fail(reader.error());
  std::string current((*reader)->length_bytes(), '\0');
  auto read = (*reader)->read(0, std::as_writable_bytes(std::span(current)));
  if (!read) return fail(read.error());
  while (!current.empty() && current.back() == '\n') current.pop_back();
  bool removed = false;
  for (const std::string& file : files.list(folder)) {
    const bool leftover = (file.starts_with("MANIFEST-") && file != current) ||
                          file.starts_with("OPTIONS-") || file.ends_with(".dbtmp");
    if (!leftover) continue;
    SARSEN_TRY(files.remove(folder + file));
    removed = true;
  }
  return removed ? files.trim() : Result<void>{};
}

}  // namespace

Result<std::unique_ptr<MetadataDb>> MetadataDb::open(MetadataFiles& files,
                                                     MetadataDbOptions options) {
  if (!options.create) {
    // RocksDB would see an empty directory; we know that there was a database.
    SARSEN_TRY(files.length(options.name + "/CURRENT"));
  }
  const std::string unfinished = options.name + kUnfinishedSuffix + "/";
  for (const std::string& file : files.list(unfinished)) {
    SARSEN_TRY(files.remove(unfinished + file));
  }
  if (!options.create) SARSEN_TRY(sweep_failed_openings(files, options.name + "/"));
  auto state = std::make_unique<State>(files, std::move(options));
  SARSEN_TRY(state->open());
  return std::unique_ptr<MetadataDb>(new MetadataDb(std::move(state)));
}

void MetadataDb::close() {
  if (!state_->db) return;
  for (rocksdb::ColumnFamilyHandle* handle : state_->handles) {
    // Cannot fail for handles of this database.
    state_->db->DestroyColumnFamilyHandle(handle).PermitUncheckedError();
  }
  state_->handles.clear();
  state_->db.reset();
}

Result<void> MetadataDb::write(const MetadataBatch& batch) {
  if (!state_->db) return closed();
  rocksdb::WriteBatch writes(batch.bytes_);
  for (const auto& operation : batch.operations_) {
    rocksdb::ColumnFamilyHandle* handle = state_->handle(operation.family);
    rocksdb::Status status;
    switch (operation.kind) {
      case MetadataBatch::Kind::put:
        status = writes.Put(handle, operation.key, operation.value);
        break;
      case MetadataBatch::Kind::remove: status = writes.Delete(handle, operation.key); break;
      case MetadataBatch::Kind::remove_range:
        status = writes.DeleteRange(handle, operation.key, operation.value);
        break;
    }
    SARSEN_TRY(result_of(status));
  }
  if (state_->unflushed_bytes + batch.bytes_ > state_->options.unflushed_bytes_max) {
    SARSEN_TRY(flush());
  }
  rocksdb::WriteOptions unlogged;
  unlogged.disableWAL = true;
  SARSEN_TRY(result_of(state_->db->Write(unlogged, &writes)));
  state_->unflushed_bytes += batch.bytes_;
  return {};
}

// --------------------------------------------------------------------------------------- reading

Result<std::optional<std::string>> MetadataDb::get(MetadataFamily family,
                                                   std::string_view key) const {
  if (!state_->db) return closed();
  std::string value;
  const auto status =
      state_->db->Get(rocksdb::ReadOptions(), state_->handle(family), slice(key), &value);
  if (status.IsNotFound()) return std::nullopt;
  if (!status.ok()) return fail(error_of(status));
  return value;
}

std::vector<Result<std::optional<std::string>>> MetadataDb::multi_get(
    MetadataFamily family, std::span<const std::string_view> keys) const {
  std::vector<Result<std::optional<std::string>>> results;
  results.reserve(keys.size());
  if (!state_->db) {
    for (std::size_t i = 0; i < keys.size(); ++i) results.push_back(closed());
    return results;
  }
  std::vector<rocksdb::Slice> slices;
  slices.reserve(keys.size());
  for (const std::string_view key : keys) slices.push_back(slice(key));
  std::vector<rocksdb::PinnableSlice> values(keys.size());
  std::vector<rocksdb::Status> statuses(keys.size());
  state_->db->MultiGet(rocksdb::ReadOptions(), state_->handle(family), keys.size(), slices.data(),
                       values.data(), statuses.data());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (statuses[i].ok()) {
      results.emplace_back(values[i].ToString());
    } else if (statuses[i].IsNotFound()) {
      results.emplace_back(std::nullopt);
    } else {
      results.push_back(fail(error_of(statuses[i])));
    }
  }
  return results;
}

MetadataCursor MetadataDb::cursor(MetadataFamily family, std::string_view begin,
                                  std::string_view end) const {
  auto cursor = std::make_unique<MetadataCursor::State>();
  if (!state_->db) return MetadataCursor(std::move(cursor));
  cursor->end = std::string(end);
  cursor->end_slice = cursor->end;
  rocksdb::ReadOptions read;
  if (!end.empty()) read.iterate_upper_bound = &cursor->end_slice;
  cursor->iterator.reset(state_->db->NewIterator(read, state_->handle(family)));
  cursor->iterator->Seek(slice(begin));
  return MetadataCursor(std::move(cursor));
}

MetadataCursor MetadataDb::prefix_cursor(MetadataFamily family, std::string_view prefix) const {
  return cursor(family, prefix, end_of_prefix(prefix));
}

// ------------------------------------------------------------------------------ flush and merge

Result<void> MetadataDb::State::flush_locked() {
  const std::uint64_t flushing = unflushed_bytes;
  if (flushing == 0) return {};
  SARSEN_TRY(files.reserve(flushing + flushing / 8 + spare_bytes()));
  rocksdb::FlushOptions wait;
  wait.wait = true;
  wait.allow_write_stall = true;
  const auto status = db->Flush(wait, handles);
  // The flush thread tidies up after it has woken us; nothing may run beside our caller.
  if (db->PauseBackgroundWork().ok()) db->ContinueBackgroundWork().PermitUncheckedError();
  if (!status.ok()) {
    return fail(make_error(MetadataError::device_failed, "flush: " + status.ToString()));
  }
  unflushed_bytes -= flushing;
  ++flushes;
  return {};
}

Result<void> MetadataDb::flush() {
  if (!state_->db) return closed();
  const std::lock_guard lock(state_->work_mutex);
  return state_->flush_locked();
}

Result<void> MetadataDb::State::merge(MetadataFamily family, const CompactionPick& pick) {
  SARSEN_TRY(files.reserve(pick.input_bytes + spare_bytes()));
  rocksdb::CompactionOptions merging;
  merging.compression = rocksdb::kNoCompression;
  merging.output_file_size_limit = options.compaction.table_file_bytes;
  merging.max_subcompactions = 1;
  const auto status = db->CompactFiles(merging, handle(family), pick.inputs, pick.output_level);
  SARSEN_TRY(result_of(status));
  ++compactions;
  return files.trim();
}

Result<CompactStep> MetadataDb::compact_step() {
  if (!state_->db) return closed();
  const std::lock_guard lock(state_->work_mutex);
  for (std::size_t i = 0; i < kMetadataFamilies; ++i) {
    const auto family = static_cast<MetadataFamily>(i);
    const auto pick = pick_compaction(shape_of(state_->shape(family)), state_->options.compaction);
    if (!pick) continue;
    SARSEN_TRY(state_->merge(family, *pick));
    return CompactStep{.worked = true, .family = family, .bytes_in = pick->input_bytes};
  }
  return CompactStep{};
}

// ---------------------------------------------------------------------------------------- damage

// How a table file of the family is read on its own.
rocksdb::Options MetadataDb::State::table_options(MetadataFamily family) const {
  rocksdb::Options table(rocksdb::DBOptions(), family_options(family, options.cache, {}));
  table.env = env.get();
  return table;
}

Result<std::vector<DamagedRange>> MetadataDb::damaged_ranges(Look look) const {
  if (!state_->db) return closed();
  const std::vector<DamagedBlock> suspects = state_->files.damage();
  std::vector<DamagedRange> ranges;
  for (std::size_t i = 0; i < kMetadataFamilies; ++i) {
    const auto family = static_cast<MetadataFamily>(i);
    const rocksdb::Options options = state_->table_options(family);
    for (const auto& level : state_->shape(family).levels) {
      for (const auto& file : level.files) {
        const std::string path = state_->options.name + "/" + file.relative_filename;
        const bool suspect = std::ranges::any_of(
            suspects, [&](const DamagedBlock& block) { return block.file == path; });
        if (look == Look::suspects && !suspect) continue;
        auto damaged = examine_table_file(
            options, path, {family, file.relative_filename, file.smallestkey, file.largestkey});
        // A file that a merge replaced meanwhile cannot be opened any more, and is not missed.
        if (damaged && state_->has_file(family, file.relative_filename)) {
          ranges.push_back(*std::move(damaged));
        }
      }
    }
  }
  return ranges;
}

std::vector<std::string> MetadataDb::readable_keys(MetadataFamily family, const std::string& first,
                                                   const std::string& last) const {
  std::set<std::string> keys;
  if (!state_->db) return {};
  const rocksdb::Options options = state_->table_options(family);
  for (const auto& level : state_->shape(family).levels) {
    for (const auto& file : level.files) {
      if (file.largestkey < first || file.smallestkey > last) continue;
      collect_keys(options, state_->options.name + "/" + file.relative_filename, first, last, keys);
    }
  }
  return {keys.begin(), keys.end()};
}

MetadataDbStats MetadataDb::stats() const {
  MetadataDbStats stats{.unflushed_bytes = state_->unflushed_bytes,
                        .flushes = state_->flushes,
                        .compactions = state_->compactions};
  if (!state_->db) return stats;
  for (std::size_t i = 0; i < kMetadataFamilies; ++i) {
    const auto shape = state_->shape(static_cast<MetadataFamily>(i));
    stats.table_bytes += shape.size;
    if (i == 0) stats.level0_files = static_cast<std::uint32_t>(shape.levels[0].files.size());
  }
  return stats;
}

}  // namespace sarsen
