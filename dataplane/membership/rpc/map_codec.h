// Cluster maps to bytes and back: what WatchMap sends, and what a map store keeps.
//
// Everything is bounded and checked before it is believed: lengths, enums, numbers of groups,
// ids that come twice (placement/map_bounds.h). Bytes that decode give a value whose encoding
// decodes to the same value.
//
// Plain functions, any thread. Errors: MonError::garbled, naming what was met.
#pragma once

#include <string>
#include <string_view>

#include "dataplane/base/result.h"
#include "dataplane/placement/cluster_map.h"

namespace sarsen {

inline constexpr std::size_t kUpdateBytesMax = 64 * kMiB;

std::string encode_update(const MapUpdate& update);
Result<MapUpdate> decode_update(std::string_view bytes);

}  // namespace sarsen
