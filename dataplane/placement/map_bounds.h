// Bounds of everything in a cluster map: who makes a map keeps them, who gets one checks them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dataplane/base/units.h"

namespace sarsen {

struct MapBounds {
  static constexpr std::size_t kNameBytesMax = 255;  // of a pool, image or node
  static constexpr std::size_t kAddressBytesMax = 255;
  static constexpr std::size_t kOsdsMax = 4096;
  static constexpr std::size_t kImagesMax = 100'000;
  static constexpr std::uint32_t kGroupBitsMax = 16;
  static constexpr std::size_t kMembersMax = 16;      // of one placement group
  static constexpr std::size_t kAttachmentsMax = 64;  // of one image
  static constexpr std::uint64_t kImageBytesMax = 1024 * kTiB;
};

}  // namespace sarsen
