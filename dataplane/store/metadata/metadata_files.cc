#include "dataplane/store/metadata/metadata_files.h"

#include <algorithm>

#include "dataplane/base/crc32c.h"
#include "dataplane/store/metadata/metadata_error.h"

namespace sarsen {
namespace {

Unexpected no_such_file(const std::string& name) {
  return fail(make_error(MetadataError::not_found, "metadata file " + name));
}

void append_unit(std::vector<UnitExtent>& extents, std::uint32_t unit) {
  if (!extents.empty() && extents.back().first + extents.back().count == unit) {
    ++extents.back().count;
  } else {
    extents.push_back({unit, 1});
  }
}

// Frees every unit of the metadata chunks that no file has.
void add_unowned(const TableState& state, UnitSpace& space) {
  const std::uint32_t units_per_chunk = state.units_per_chunk();
  std::vector<bool> owned(state.owners.size() * units_per_chunk);
  for (const auto& [name, file] : state.files) {
    for (const auto& copy : file.copies) {
      for (const UnitExtent& extent : copy) {
        std::fill_n(owned.begin() + extent.first, extent.count, true);
      }
    }
  }
  for (std::uint32_t chunk = 0; chunk < state.owners.size(); ++chunk) {
    if (!state.owners[chunk].is_metadata()) continue;
    for (std::uint32_t unit = chunk * units_per_chunk; unit < (chunk + 1) * units_per_chunk;
         ++unit) {
      if (!owned[unit]) space.add({unit, 1});
    }
  }
}

}  // namespace

MetadataFiles::MetadataFiles(BlockingDisk& disk, DeviceTable& table)
    : table_(table),
      map_{.disk = disk,
           .chunk_area = table.geometry().chunk_area,
           .unit_bytes = table.geometry().unit_bytes,
           .device_seed = crc32c(table.geometry().device_uuid)} {}

MetadataFiles::~MetadataFiles() {
  for (const auto& [name, node] : nodes_) {
    SARSEN_ASSERT(node->handles == 0, "readers and writers end before their files");
  }
}

std::unique_ptr<MetadataFiles> MetadataFiles::open(BlockingDisk& disk, DeviceTable& table) {
  std::unique_ptr<MetadataFiles> files(new MetadataFiles(disk, table));
  const TableState state = table.state();
  add_unowned(state, files->space_);
  files->next_serial_ = state.next_serial;
  for (const auto& [name, file] : state.files) {
    auto node = std::make_shared<Node>();
    node->name = name;
    node->durable = file;
    node->extents = file.copies;
    node->serial = file.serial;
    node->length_bytes = file.length_bytes;
    node->mirrored = file.mirrored;
    node->in_table = true;
    files->nodes_.emplace(name, std::move(node));
  }
  return files;
}

// --------------------------------------------------------------------------------------- names

std::unique_ptr<FileWriter> MetadataFiles::create(const std::string& name, bool mirrored) {
  const std::lock_guard lock(mutex_);
  if (const auto found = nodes_.find(name); found != nodes_.end()) {
    drop_locked(found->second);
    nodes_.erase(found);
  }
  auto node = std::make_shared<Node>();
  node->name = name;
  node->serial = next_serial_++;
  node->mirrored = mirrored;
  node->handles = 1;
  nodes_.emplace(name, node);
  return std::unique_ptr<FileWriter>(new FileWriter(*this, std::move(node)));
}

Result<std::unique_ptr<FileReader>> MetadataFiles::read(const std::string& name) {
  std::unique_ptr<FileReader> reader;
  {
    const std::lock_guard lock(mutex_);
    const auto found = nodes_.find(name);
    if (found == nodes_.end()) return no_such_file(name);
    ++found->second->handles;
    reader.reset(new FileReader(*this, found->second));
  }
  if (reader->file_.mirrored) SARSEN_TRY(reader->load_mirrored());
  return reader;
}

Result<void> MetadataFiles::remove(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = nodes_.find(name);
  if (found == nodes_.end()) return no_such_file(name);
  drop_locked(found->second);
  nodes_.erase(found);
  return {};
}

Result<void> MetadataFiles::rename(const std::string& before, const std::string& after) {
  const std::lock_guard lock(mutex_);
  const auto found = nodes_.find(before);
  if (found == nodes_.end()) return no_such_file(before);
  const NodePtr node = found->second;
  if (!node->in_table) {
    return fail(make_error(MetadataError::bad_request, "rename of " + before + " before its sync"));
  }
  if (before == after) return {};
  std::vector<TableChange> changes{RenameFile{before, after}};
  SARSEN_TRY(commit_locked(std::move(changes)));
  nodes_.erase(found);
  if (const auto replaced = nodes_.find(after); replaced != nodes_.end()) {
    // The record that renamed also dropped it.
    dropped_.push_back({replaced->second, true});
    nodes_.erase(replaced);
    forget_damage_locked(after);
  }
  node->name = after;
  nodes_.emplace(after, node);
  collect_locked();
  return {};
}

std::vector<MetadataFiles::NodePtr> MetadataFiles::under_locked(std::string_view prefix) const {
  std::vector<NodePtr> found;
  for (auto it = nodes_.lower_bound(prefix); it != nodes_.end() && it->first.starts_with(prefix);
       ++it) {
    if (it->second->in_table) found.push_back(it->second);
  }
  return found;
}

Result<void> MetadataFiles::replace_all(std::string_view before, std::string_view after) {
  const std::lock_guard lock(mutex_);
  const std::vector<NodePtr> replaced = under_locked(after);
  const std::vector<NodePtr> moved = under_locked(before);
  const auto new_name = [&](const NodePtr& node) {
    return std::string(after) + node->name.substr(before.size());
  };
  std::vector<TableChange> changes;
  for (const NodePtr& node : replaced) changes.emplace_back(RemoveFile{node->name});
  for (const NodePtr& node : moved) changes.emplace_back(RenameFile{node->name, new_name(node)});
  SARSEN_TRY(commit_locked(std::move(changes)));
  for (const NodePtr& node : replaced) {
    nodes_.erase(node->name);
    forget_damage_locked(node->name);
    dropped_.push_back({node, true});
  }
  for (const NodePtr& node : moved) {
    nodes_.erase(node->name);
    node->name = new_name(node);
    nodes_.insert_or_assign(node->name, node);
  }
  collect_locked();
  return {};
}

Result<std::uint64_t> MetadataFiles::length(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = nodes_.find(name);
  if (found == nodes_.end()) return no_such_file(name);
  return found->second->length_bytes;
}

std::vector<std::string> MetadataFiles::list(std::string_view prefix) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (auto it = nodes_.lower_bound(prefix); it != nodes_.end() && it->first.starts_with(prefix);
       ++it) {
    names.push_back(it->first.substr(prefix.size()));
  }
  return names;
}

// --------------------------------------------------------------------------------------- space

// The node has just left `nodes_`.
void MetadataFiles::drop_locked(const NodePtr& node) {
  if (node->in_table) pending_.emplace_back(RemoveFile{node->name});
  dropped_.push_back({node, !node->in_table});
  forget_damage_locked(node->name);
  collect_locked();
}

void MetadataFiles::forget_damage_locked(const std::string& name) {
  std::erase_if(damage_, [&](const DamagedBlock& block) { return block.file == name; });
}

// Frees what no record names and nobody reads.
void MetadataFiles::collect_locked() {
  for (auto it = dropped_.begin(); it != dropped_.end();) {
    if (!it->durably || it->node->handles != 0) {
      ++it;
      continue;
    }
    for (const auto& copy : it->node->extents) {
      for (const UnitExtent& extent : copy) space_.add(extent);
    }
    it = dropped_.erase(it);
  }
}

Result<void> MetadataFiles::commit_locked(std::vector<TableChange> changes) {
  std::vector<TableChange> all = pending_;
  std::ranges::move(changes, std::back_inserter(all));
  if (all.empty()) return {};
  SARSEN_TRY(table_.commit(std::move(all)));
  pending_.clear();
  for (Dropped& dropped : dropped_) dropped.durably = true;
  collect_locked();
  return {};
}

Result<void> MetadataFiles::grant_locked() {
  // Removed files may hold what is needed.
  if (!pending_.empty()) {
    const std::uint64_t before = space_.free_units();
    SARSEN_TRY(commit_locked({}));
    if (space_.free_units() > before) return {};
  }
  const auto chunk = table_.grant_chunk(ChunkOwner::metadata());
  if (!chunk) return fail(chunk.error());
  const auto units_per_chunk =
      static_cast<std::uint32_t>(table_.geometry().chunk_bytes / map_.unit_bytes);
  space_.add({chunk->value * units_per_chunk, units_per_chunk});
  return {};
}

Result<void> MetadataFiles::extend_locked(Node& node, std::size_t copy) {
  if (space_.free_units() == 0) SARSEN_TRY(grant_locked());
  auto& extents = node.extents[copy];
  const std::uint32_t wanted =
      extents.empty() ? 0xffffffffu : extents.back().first + extents.back().count;
  const auto unit = space_.take(wanted, copy == 1);
  SARSEN_ASSERT(unit.has_value(), "a granted chunk has free units");
  append_unit(extents, *unit);
  return {};
}

Result<void> MetadataFiles::reserve(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t contents_per_unit =
      std::uint64_t{map_.blocks_per_unit()} * kFileBlockPayloadBytes;
  const std::uint64_t units = (bytes + contents_per_unit - 1) / contents_per_unit;
  while (space_.free_units() < units) SARSEN_TRY(grant_locked());
  return {};
}

Result<void> MetadataFiles::trim() {
  const std::lock_guard lock(mutex_);
  SARSEN_TRY(commit_locked({}));
  const auto units_per_chunk =
      static_cast<std::uint32_t>(table_.geometry().chunk_bytes / map_.unit_bytes);
  const std::vector<ChunkOwner> owners = table_.owners();
  // From the top, so that the zone shrinks towards its first chunks.
  for (auto chunk = static_cast<std::uint32_t>(owners.size()); chunk-- > 0;) {
    if (space_.free_units() < 2ull * units_per_chunk) break;
    const UnitExtent units{chunk * units_per_chunk, units_per_chunk};
    if (!owners[chunk].is_metadata() || !space_.take_all(units)) continue;
    if (auto returned = table_.return_chunk(ChunkIndex(chunk), ChunkOwner::metadata()); !returned) {
      space_.add(units);
      return returned;
    }
  }
  return {};
}

// ------------------------------------------------------------------------------------- handles

void MetadataFiles::release(const NodePtr& node) {
  const std::lock_guard lock(mutex_);
  --node->handles;
  collect_locked();
}

// The blocks are written. Makes them durable, then the record that says so.
Result<void> MetadataFiles::sync(Node& node, std::uint32_t block_count) {
  SARSEN_TRY(map_.disk.flush());
  const std::lock_guard lock(mutex_);
  ++stats_.syncs;
  const auto found = nodes_.find(node.name);
  // A file that was removed or replaced while it was written has no name to be durable under.
  if (found == nodes_.end() || found->second.get() != &node) return {};
  TableFile file{.serial = node.serial,
                 .length_bytes = node.length_bytes,
                 .block_count = block_count,
                 .mirrored = node.mirrored,
                 .copies = node.extents};
  std::vector<TableChange> changes{PutFile{node.name, file}};
  SARSEN_TRY(commit_locked(std::move(changes)));
  node.durable = std::move(file);
  node.in_table = true;
  return {};
}

void MetadataFiles::note_damage(const std::string& file, std::uint32_t block_index) {
  const std::lock_guard lock(mutex_);
  ++stats_.blocks_bad;
  const DamagedBlock block{file, block_index};
  const auto at = std::ranges::lower_bound(damage_, block);
  if ((at != damage_.end() && *at == block) || damage_.size() == kDamageMax) return;
  damage_.insert(at, block);
}

MetadataFileStats MetadataFiles::stats() const {
  const std::lock_guard lock(mutex_);
  MetadataFileStats stats = stats_;
  stats.bytes_written = bytes_written_;
  stats.bytes_read = bytes_read_;
  stats.free_bytes = space_.free_units() * map_.unit_bytes;
  return stats;
}

std::vector<DamagedBlock> MetadataFiles::damage() const {
  const std::lock_guard lock(mutex_);
  return damage_;
}

}  // namespace sarsen
