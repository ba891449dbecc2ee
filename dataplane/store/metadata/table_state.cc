#include "dataplane/store/metadata/table_state.h"

#include <algorithm>

#include "dataplane/store/metadata/metadata_error.h"

namespace sarsen {
namespace {

Unexpected contradiction(std::string detail) {
  return fail(make_error(MetadataError::corrupt, std::move(detail)));
}

std::uint64_t blocks_in(const std::vector<UnitExtent>& extents, std::uint32_t unit_bytes) {
  std::uint64_t units = 0;
  for (const UnitExtent& extent : extents) units += extent.count;
  return units * (unit_bytes / kBlockBytes);
}

// Marks the units of one copy in `taken`; each must be in a metadata chunk and unmarked.
Result<void> take_units(const TableState& state, const std::string& name,
                        const std::vector<UnitExtent>& extents, std::vector<bool>& taken) {
  const std::uint32_t units_per_chunk = state.units_per_chunk();
  for (const UnitExtent& extent : extents) {
    const std::uint64_t end = std::uint64_t{extent.first} + extent.count;
    if (extent.count == 0 || end > taken.size()) {
      return contradiction("file " + name + " has an extent outside the chunk area");
    }
    for (std::uint64_t unit = extent.first; unit < end; ++unit) {
      if (!state.owners[unit / units_per_chunk].is_metadata()) {
        return contradiction("I-META-2: file " + name + " has unit " + std::to_string(unit) +
                             " in a chunk that is not the metadata zone's");
      }
      if (taken[unit]) {
        return contradiction("I-META-2: unit " + std::to_string(unit) +
                             " is owned twice, also by " + name);
      }
      taken[unit] = true;
    }
  }
  return {};
}

struct Applier {
  TableState& state;

  Result<void> operator()(const SetOwner& change) {
    if (change.chunk.value >= state.owners.size()) {
      return contradiction("chunk " + std::to_string(change.chunk.value) + " does not exist");
    }
    ChunkOwner& owner = state.owners[change.chunk.value];
    if (!(owner == change.before)) {
      return contradiction("I-META-1: chunk " + std::to_string(change.chunk.value) +
                           " changes hands from somebody who does not own it");
    }
    owner = change.after;
    return {};
  }
  Result<void> operator()(const PutFile& change) {
    if (change.name.empty() || change.name.size() > kTableNameBytesMax) {
      return contradiction("a file name has " + std::to_string(change.name.size()) + " bytes");
    }
    state.next_serial = std::max(state.next_serial, change.file.serial + 1);
    state.files.insert_or_assign(change.name, change.file);
    return {};
  }
  Result<void> operator()(const RemoveFile& change) {
    if (state.files.erase(change.name) == 0) {
      return contradiction("file " + change.name + " is removed but does not exist");
    }
    return {};
  }
  Result<void> operator()(const RenameFile& change) {
    auto node = state.files.extract(change.before);
    if (node.empty()) {
      return contradiction("file " + change.before + " is renamed but does not exist");
    }
    state.files.erase(change.after);
    node.key() = change.after;
    state.files.insert(std::move(node));
    return {};
  }
};

}  // namespace

std::uint32_t TableState::count(ChunkOwner owner) const {
  return static_cast<std::uint32_t>(std::count(owners.begin(), owners.end(), owner));
}

Result<void> TableState::apply(const TableChange& change) {
  return std::visit(Applier{*this}, change);
}

Result<void> TableState::check() const {
  std::vector<bool> taken(owners.size() * units_per_chunk());
  for (const auto& [name, file] : files) {
    if (file.serial == 0 || file.serial >= next_serial) {
      return contradiction("file " + name + " has a serial that was never given");
    }
    if (!file.mirrored && !file.copies[1].empty()) {
      return contradiction("file " + name + " has a second copy but is not mirrored");
    }
    if (file.length_bytes > std::uint64_t{file.block_count} * kFileBlockPayloadBytes) {
      return contradiction("file " + name + " is longer than its blocks");
    }
    for (std::size_t copy = 0; copy < (file.mirrored ? 2u : 1u); ++copy) {
      if (blocks_in(file.copies[copy], unit_bytes) < file.block_count) {
        return contradiction("file " + name + " has fewer units than blocks");
      }
      SARSEN_TRY(take_units(*this, name, file.copies[copy], taken));
    }
  }
  return {};
}

}  // namespace sarsen
