// Cluster maps to bytes and back: what WatchMap sends, and what a map store keeps.
//
// Everything is bounded and checked before it is believed: lengths, enums, numbers of groups,
// references between entries of one update. Bytes that decode give a value whose encoding decodes
// to the same value.
//
// Plain functions, any thread. Errors: MonError::garbled, naming what was met.
#pragma once

#include <string>
#include <string_view>

#include "dataplane/base/result.h"
#include "dataplane/placement/cluster_map.h"

namespace sarsen {

struct MapBounds {
  static constexpr std::size_t kNameBytesMax = 255;
  static constexpr std::size_t kAddressBytesMax = 255;
  static constexpr std::uint32_t kGroupBitsMax = 16;
  static constexpr std::size_t kMembersMax = 16;      // of one placement group
  static constexpr std::size_t kAttachmentsMax = 64;  // of one image
  static constexpr std::size_t kUpdateBytesMax = 64 * kMiB;
  static constexpr std::uint64_t kImageBytesMax = 1024 * kTiB;
};

std::string encode_update(const MapUpdate& update);
Result<MapUpdate> decode_update(std::string_view bytes);

}  // namespace sarsen
