// What the device table says, in memory: who owns each chunk, and the metadata files.
//
// Pure values: no I/O, no locks. DeviceTable journals the changes; table_codec gives them bytes.
//
// Invariants  I-META-1 every chunk has exactly one owner: free, one lane, or the metadata zone.
//             I-META-2 every unit of a metadata file lies in a chunk of the metadata zone, and no
//                      unit belongs to two files or twice to one.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "dataplane/base/result.h"
#include "dataplane/base/units.h"
#include "dataplane/store/metadata/table_format.h"

namespace sarsen {

using ChunkIndex = Strong<struct ChunkIndexTag, std::uint32_t>;

// Free, the metadata zone, or a lane.
class ChunkOwner {
 public:
  constexpr ChunkOwner() = default;
  static constexpr ChunkOwner free() { return ChunkOwner(kOwnerFree); }
  static constexpr ChunkOwner metadata() { return ChunkOwner(kOwnerMetadata); }
  static constexpr ChunkOwner lane(LaneId lane) { return ChunkOwner(lane.value + 1); }
  static constexpr ChunkOwner from_encoded(std::uint32_t encoded) { return ChunkOwner(encoded); }

  constexpr bool is_free() const { return encoded_ == kOwnerFree; }
  constexpr bool is_metadata() const { return encoded_ == kOwnerMetadata; }
  constexpr bool is_lane() const { return !is_free() && !is_metadata(); }
  // Only when is_lane().
  constexpr LaneId lane_id() const { return LaneId(encoded_ - 1); }
  constexpr std::uint32_t encoded() const { return encoded_; }
  constexpr bool operator==(const ChunkOwner&) const = default;

 private:
  constexpr explicit ChunkOwner(std::uint32_t encoded) : encoded_(encoded) {}
  std::uint32_t encoded_ = kOwnerFree;
};

// A run of units of the metadata zone.
struct UnitExtent {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  bool operator==(const UnitExtent&) const = default;
};

struct TableFile {
  std::uint64_t serial = 0;
  std::uint64_t length_bytes = 0;  // durable
  std::uint32_t block_count = 0;   // durable
  bool mirrored = false;
  std::array<std::vector<UnitExtent>, 2> copies;  // the second is empty unless mirrored
  bool operator==(const TableFile&) const = default;
};

// ------------------------------------------------------------------------------------- changes

struct SetOwner {
  ChunkIndex chunk;
  ChunkOwner before;
  ChunkOwner after;
  bool operator==(const SetOwner&) const = default;
};
// Adds the file, or replaces the one of this name.
struct PutFile {
  std::string name;
  TableFile file;
  bool operator==(const PutFile&) const = default;
};
struct RemoveFile {
  std::string name;
  bool operator==(const RemoveFile&) const = default;
};
// Replaces the file named `after`, if there is one.
struct RenameFile {
  std::string before;
  std::string after;
  bool operator==(const RenameFile&) const = default;
};
using TableChange = std::variant<SetOwner, PutFile, RemoveFile, RenameFile>;

// --------------------------------------------------------------------------------------- state

struct TableState {
  std::uint64_t chunk_bytes = 0;
  std::uint32_t unit_bytes = 0;
  std::uint64_t next_serial = 1;
  std::vector<ChunkOwner> owners;
  std::map<std::string, TableFile, std::less<>> files;

  std::uint32_t units_per_chunk() const {
    return static_cast<std::uint32_t>(chunk_bytes / unit_bytes);
  }
  std::uint32_t count(ChunkOwner owner) const;

  // Error: corrupt, when the change contradicts the state; the state is then unchanged.
  Result<void> apply(const TableChange& change);
  // I-META-1 and I-META-2 over the whole table. Error: corrupt, naming what is wrong.
  Result<void> check() const;

  bool operator==(const TableState&) const = default;
};

}  // namespace sarsen
