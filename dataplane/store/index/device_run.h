// A contiguous piece of the device that holds data, in blocks.
#pragma once

#include <cstdint>

#include "dataplane/base/units.h"

namespace sarsen {

struct DeviceRun {
  BlockIndex start;
  std::uint32_t blocks = 0;

  BlockIndex end() const { return BlockIndex(start.value + blocks); }
  bool operator==(const DeviceRun&) const = default;
};

// Device blocks are numbered below this, so that every byte offset fits a signed 64-bit file
// offset.
inline constexpr std::uint64_t kDeviceBlocksMax = (std::uint64_t{1} << 63) / kBlockBytes;

}  // namespace sarsen
