#include "dataplane/mon/store/rocksdb_map_store.h"

#include <filesystem>
#include <map>
#include <vector>

#include <fcntl.h>
#include <rocksdb/db.h>
#include <rocksdb/write_batch.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataplane/membership/rpc/map_proto.h"
#include "dataplane/mon/store/map_store.pb.h"

namespace sarsen {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kFormat = 1;
constexpr const char* kRootKey = "root";

// "image/00000000000000000007": in order of numbers, and readable in a dump.
std::string key_of(const char* kind, std::uint64_t id) {
  std::string digits = std::to_string(id);
  return std::string(kind) + "/" + std::string(20 - digits.size(), '0') + digits;
}

std::string value_of(const OsdEntry& entry) {
  v1::Osd message;
  to_proto(entry, message);
  return message.SerializeAsString();
}
std::string value_of(const PoolEntry& entry) {
  v1::Pool message;
  to_proto(entry, message);
  return message.SerializeAsString();
}
std::string value_of(const ImageEntry& entry) {
  v1::Image message;
  to_proto(entry, message);
  return message.SerializeAsString();
}

std::string root_value(const MonState& state) {
  v1::MapStoreRoot root;
  root.set_format(kFormat);
  root.set_cluster(bytes_of(state.map.cluster));
  root.set_store_incarnation(state.map.store_incarnation);
  root.set_epoch(state.map.epoch.value);
  root.set_osd_next(state.osd_next);
  root.set_pool_next(state.pool_next);
  root.set_image_next(state.image_next);
  root.set_osds(state.map.osds.size());
  root.set_pools(state.map.pools.size());
  root.set_images(state.map.images.size());
  root.set_boots(state.boots.size());
  return root.SerializeAsString();
}

rocksdb::Options options_of(bool create) {
  rocksdb::Options options;
  options.create_if_missing = create;
  options.error_if_exists = create;
  options.paranoid_checks = true;
  options.track_and_verify_wals_in_manifest = true;
  // A tail that a crash tore was never acknowledged; damage anywhere else must not pass for one.
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
  // A map is small: one background thread, few and small files.
  options.max_background_jobs = 2;
  options.write_buffer_size = 4 << 20;
  options.max_open_files = 64;
  options.keep_log_file_num = 4;
  options.max_log_file_size = 1 << 20;
  return options;
}

Error error_of(const rocksdb::Status& status, const std::string& folder) {
  const std::string detail = folder + ": " + status.ToString();
  if (status.IsCorruption()) return make_error(MapStoreError::corrupt, detail);
  // RocksDB has no code of its own for a lock that is held.
  if (status.IsIOError() && status.ToString().find("lock") != std::string::npos) {
    return make_error(MapStoreError::in_use, folder);
  }
  // A file that RocksDB knows of and the folder has not.
  if (status.IsPathNotFound() || status.ToString().find("No such file") != std::string::npos) {
    return make_error(MapStoreError::corrupt, detail);
  }
  return make_error(MapStoreError::io_error, detail);
}

Error corrupt(const std::string& folder, const std::string& what) {
  return make_error(MapStoreError::corrupt, folder + ": " + what);
}

template <typename Key, typename Entry>
void put_changes(rocksdb::WriteBatch& batch, const char* kind, const std::map<Key, Entry>& from,
                 const std::map<Key, Entry>& to) {
  for (const auto& [key, entry] : to) {
    const auto before = from.find(key);
    if (before == from.end() || before->second != entry)
      batch.Put(key_of(kind, key.value), value_of(entry));
  }
  for (const auto& [key, entry] : from) {
    if (!to.contains(key)) batch.Delete(key_of(kind, key.value));
  }
}

void put_boots(rocksdb::WriteBatch& batch, const MonState& from, const MonState& to) {
  for (const auto& [osd, boot_id] : to.boots) {
    const auto before = from.boots.find(osd);
    if (before != from.boots.end() && before->second == boot_id) continue;
    v1::MapStoreBoot boot;
    boot.set_osd(osd.value);
    boot.set_boot_id(boot_id);
    batch.Put(key_of("boot", osd.value), boot.SerializeAsString());
  }
  for (const auto& [osd, boot_id] : from.boots) {
    if (!to.boots.contains(osd)) batch.Delete(key_of("boot", osd.value));
  }
}

rocksdb::WriteBatch batch_of(const MonState& from, const MonState& to) {
  rocksdb::WriteBatch batch;
  put_changes(batch, "osd", from.map.osds, to.map.osds);
  put_changes(batch, "pool", from.map.pools, to.map.pools);
  put_changes(batch, "image", from.map.images, to.map.images);
  put_boots(batch, from, to);
  batch.Put(kRootKey, root_value(to));
  return batch;
}

rocksdb::WriteOptions synced() {
  rocksdb::WriteOptions options;
  options.sync = true;
  return options;
}

// Reads one entry after the other into a state.
class Loader {
 public:
  Loader(std::string folder, MonState& state) : folder_(std::move(folder)), state_(state) {}

  Result<void> take(const rocksdb::Slice& key, const rocksdb::Slice& value) {
    const std::string name = key.ToString();
    if (name == kRootKey) return take_root(value);
    const std::string kind = name.substr(0, name.find('/'));
    if (kind == "osd") return take_entry<v1::Osd>(name, kind, value, state_.map.osds);
    if (kind == "pool") return take_entry<v1::Pool>(name, kind, value, state_.map.pools);
    if (kind == "image") return take_entry<v1::Image>(name, kind, value, state_.map.images);
    if (kind == "boot") return take_boot(name, value);
    return fail(corrupt(folder_, "a key that nobody wrote: " + name));
  }

  Result<void> finish() const {
    if (!has_root_) return fail(corrupt(folder_, "the root is missing"));
    if (root_.osds() != state_.map.osds.size() || root_.pools() != state_.map.pools.size() ||
        root_.images() != state_.map.images.size() || root_.boots() != state_.boots.size()) {
      return fail(corrupt(folder_, "entries are missing"));
    }
    return {};
  }

 private:
  Result<void> take_root(const rocksdb::Slice& value) {
    if (!parse(value, root_)) return fail(corrupt(folder_, "the root"));
    if (root_.format() != kFormat) {
      return fail(make_error(MapStoreError::format_unsupported,
                             folder_ + ": format " + std::to_string(root_.format()) +
                                 ", expected " + std::to_string(kFormat)));
    }
    const auto cluster = cluster_from(root_.cluster());
    if (!cluster || root_.epoch() == 0) return fail(corrupt(folder_, "the root"));
    state_.map.cluster = *cluster;
    state_.map.store_incarnation = root_.store_incarnation();
    state_.map.epoch = MapEpoch(root_.epoch());
    state_.osd_next = root_.osd_next();
    state_.pool_next = root_.pool_next();
    state_.image_next = root_.image_next();
    has_root_ = true;
    return {};
  }

  template <typename Message, typename Key, typename Entry>
  Result<void> take_entry(const std::string& name, const std::string& kind,
                          const rocksdb::Slice& value, std::map<Key, Entry>& entries) {
    Message message;
    if (!parse(value, message)) return fail(corrupt(folder_, name));
    auto entry = from_proto(message);
    if (!entry) return fail(corrupt(folder_, name + ": " + entry.error().message()));
    const Key key = entry->id;
    if (name != key_of(kind.c_str(), key.value))
      return fail(corrupt(folder_, name + " holds another entry"));
    entries.emplace(key, *std::move(entry));
    return {};
  }

  Result<void> take_boot(const std::string& name, const rocksdb::Slice& value) {
    v1::MapStoreBoot boot;
    if (!parse(value, boot) || name != key_of("boot", boot.osd()))
      return fail(corrupt(folder_, name));
    state_.boots.emplace(OsdId(boot.osd()), boot.boot_id());
    return {};
  }

  template <typename Message>
  static bool parse(const rocksdb::Slice& value, Message& message) {
    return message.ParseFromArray(value.data(), static_cast<int>(value.size()));
  }

  std::string folder_;
  MonState& state_;
  v1::MapStoreRoot root_;
  bool has_root_ = false;
};

// The folder itself must be found after a power loss.
Result<void> sync_parent(const std::string& folder) {
  const fs::path parent = fs::absolute(folder).parent_path();
  const int descriptor = ::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = descriptor >= 0 && ::fsync(descriptor) == 0;
  if (descriptor >= 0) ::close(descriptor);
  if (!synced) return fail(make_error(MapStoreError::io_error, "sync " + parent.string()));
  return {};
}

}  // namespace

struct RocksdbMapStore::Database {
  std::string folder;
  std::unique_ptr<rocksdb::DB> db;
};

RocksdbMapStore::RocksdbMapStore(std::unique_ptr<Database> database)
    : database_(std::move(database)) {}
RocksdbMapStore::~RocksdbMapStore() = default;

Result<void> RocksdbMapStore::create(const std::string& folder, const MonState& state) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return fail(make_error(MapStoreError::io_error, folder + ": " + error.message()));
  if (!fs::is_empty(folder, error) || error) return fail(make_error(MapStoreError::exists, folder));
  ::chmod(folder.c_str(), 0700);
  rocksdb::DB* opened = nullptr;
  rocksdb::Status status = rocksdb::DB::Open(options_of(true), folder, &opened);
  const std::unique_ptr<rocksdb::DB> db(opened);
  if (status.ok()) {
    rocksdb::WriteBatch batch = batch_of({}, state);
    status = db->Write(synced(), &batch);
  }
  if (status.ok()) status = db->Close();
  if (!status.ok()) return fail(error_of(status, folder));
  return sync_parent(folder);
}

Result<std::unique_ptr<RocksdbMapStore>> RocksdbMapStore::open(const std::string& folder) {
  std::error_code error;
  // RocksDB would make one of nothing when CURRENT is gone.
  if (!fs::exists(folder, error) ||
      (fs::is_directory(folder, error) && fs::is_empty(folder, error))) {
    return fail(make_error(MapStoreError::absent, folder));
  }
  if (!fs::exists(fs::path(folder) / "CURRENT", error)) {
    return fail(corrupt(folder, "the file CURRENT is missing"));
  }
  rocksdb::DB* opened = nullptr;
  const rocksdb::Status status = rocksdb::DB::Open(options_of(false), folder, &opened);
  if (!status.ok()) return fail(error_of(status, folder));
  auto database = std::make_unique<Database>(Database{.folder = folder, .db = {}});
  database->db.reset(opened);
  return std::unique_ptr<RocksdbMapStore>(new RocksdbMapStore(std::move(database)));
}

Result<MonState> RocksdbMapStore::load() {
  MonState state;
  Loader loader(database_->folder, state);
  rocksdb::ReadOptions options;
  options.verify_checksums = true;
  const std::unique_ptr<rocksdb::Iterator> entry(database_->db->NewIterator(options));
  for (entry->SeekToFirst(); entry->Valid(); entry->Next()) {
    SARSEN_TRY(loader.take(entry->key(), entry->value()));
  }
  if (!entry->status().ok()) return fail(error_of(entry->status(), database_->folder));
  SARSEN_TRY(loader.finish());
  return state;
}

Result<void> RocksdbMapStore::commit(const MonState& from, const MonState& to) {
  rocksdb::WriteBatch batch = batch_of(from, to);
  const rocksdb::Status status = database_->db->Write(synced(), &batch);
  if (!status.ok()) return fail(error_of(status, database_->folder));
  return {};
}

}  // namespace sarsen
