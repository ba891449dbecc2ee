// What the next server must know about a mapped device, as the keeper's opaque state.
//
// Little-endian. A later version may only append; the first version is read by every server for
// ever, because a device may stay mapped across any number of upgrades.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dataplane/blockd/fuse/fuse_protocol.h"
#include "dataplane/blockd/fuse/loop_device.h"

namespace sarsen::fuse {

struct DeviceState {
  Negotiated negotiated;
  std::string file_name;
  std::uint32_t sector_bytes = 4096;
  std::uint32_t loop_number = 0;
  LoopBacking backing;
  // Of the user of this library: which image, with which attachment.
  std::vector<std::byte> user;
};

inline constexpr std::size_t kUserStateBytesMax = 32 * kKiB;

std::vector<std::byte> encode(const DeviceState& state);
// Nothing: not a state.
std::optional<DeviceState> decode_device_state(std::span<const std::byte> bytes);

}  // namespace sarsen::fuse
