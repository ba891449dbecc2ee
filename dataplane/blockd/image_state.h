// What the next blockd must know to go on with an image that is mapped here: the opaque state that
// the keeper holds (of a loop device inside DeviceState::user, of an NBD export by itself).
//
// Little-endian. A later version may only append; the first version is read by every blockd for
// ever, because an image may stay mapped across any number of upgrades.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/placement/cluster_map.h"

namespace sarsen::blockd {

enum class Frontend : std::uint8_t { loop = 1, nbd = 2 };
std::string_view name_of(Frontend frontend);

struct ImageState {
  std::string name;  // POOL/IMAGE
  ImageId image{};
  HolderId holder{};
  AttachEpoch attach_epoch{};
  AttachMode mode = AttachMode::single_writer;
  Frontend frontend = Frontend::loop;
  std::uint32_t sector_bytes = 4096;
  std::uint64_t size_bytes = 0;  // when it was mapped
  bool operator==(const ImageState&) const = default;

  bool read_only() const { return mode == AttachMode::read_only; }
};

// The keeper's kinds of entries that have no descriptors.
inline constexpr std::string_view kKindNbd = "nbd";        // an export
inline constexpr std::string_view kKindDetach = "detach";  // unmapped, and the mon was not told yet

// The loop device's label and the keeper hold it; POOL/IMAGE.
inline constexpr std::size_t kImageNameBytesMax = 255;

std::vector<std::byte> encode(const ImageState& state);
// Nothing: not a state.
std::optional<ImageState> decode_image_state(std::span<const std::byte> bytes);

}  // namespace sarsen::blockd
