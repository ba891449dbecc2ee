// Blocks of metadata files: sealing and checking them, and finding them on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "dataplane/runtime/env.h"
#include "dataplane/store/metadata/table_state.h"

namespace sarsen {

// Puts the header before the `payload_bytes` of contents that already lie in `block`.
void seal_file_block(std::span<std::byte> block, std::uint32_t device_seed, std::uint64_t serial,
                     std::uint32_t block_index, std::uint16_t payload_bytes);
// The contents of `block`, or nothing when it is not this block of this file.
std::optional<std::span<const std::byte>> open_file_block(std::span<const std::byte> block,
                                                          std::uint32_t device_seed,
                                                          std::uint64_t serial,
                                                          std::uint32_t block_index);

// Where the units of the metadata zone are, and the disk they are on.
struct UnitMap {
  BlockingDisk& disk;
  ByteOffset chunk_area;
  std::uint32_t unit_bytes;
  std::uint32_t device_seed;  // crc32c of the device uuid

  std::uint32_t blocks_per_unit() const { return unit_bytes / kBlockBytes; }
  // Writes whole blocks, block `first_block` of the extents first.
  Result<void> write(const std::vector<UnitExtent>& extents, std::uint32_t first_block,
                     std::span<const std::byte> blocks) const;
  Result<void> read(const std::vector<UnitExtent>& extents, std::uint32_t first_block,
                    std::span<std::byte> blocks) const;
};

}  // namespace sarsen
