// Where things are on a device. Fixed when the device is formatted, kept in the superblock.
//
//   0            superblock copy 0 (offset 0) and 1 (offset 64 KiB)
//   128 KiB      device table: region A, region B (first mirrors)
//   ...          journal: segment_count segments of segment_bytes
//   ...          chunks: chunk_count of chunk_bytes, owned by lanes or by the metadata zone
//   size-128 KiB-2R   device table: region A, region B (second mirrors)
//   size-128 KiB superblock copy 2 and, 64 KiB later, 3
#pragma once

#include <array>
#include <cstdint>

#include "dataplane/base/result.h"
#include "dataplane/base/units.h"

namespace sarsen {

inline constexpr std::uint32_t kSuperblockCopies = 4;
inline constexpr std::uint64_t kSuperblockSpacing = 64 * kKiB;

struct StoreGeometry {
  std::uint64_t device_bytes = 0;
  std::uint64_t table_region_bytes = 0;
  std::uint64_t segment_bytes = 0;
  std::uint32_t segment_count = 0;
  std::uint32_t lane_count = 0;
  std::uint64_t chunk_bytes = 0;
  std::uint32_t chunk_count = 0;

  bool operator==(const StoreGeometry&) const = default;

  std::array<ByteOffset, kSuperblockCopies> superblocks() const {
    return {ByteOffset(0), ByteOffset(kSuperblockSpacing),
            ByteOffset(device_bytes - 2 * kSuperblockSpacing),
            ByteOffset(device_bytes - kSuperblockSpacing)};
  }
  // Region 0 (A) or 1 (B), mirror 0 or 1.
  ByteOffset table_region(std::uint32_t region, std::uint32_t mirror) const {
    const std::uint64_t start =
        mirror == 0 ? 2 * kSuperblockSpacing
                    : device_bytes - 2 * kSuperblockSpacing - 2 * table_region_bytes;
    return ByteOffset(start + region * table_region_bytes);
  }
  ByteOffset segment(std::uint32_t index) const {
    return ByteOffset(2 * kSuperblockSpacing + 2 * table_region_bytes + index * segment_bytes);
  }
  ByteOffset chunks_start() const { return segment(segment_count); }
  std::uint32_t blocks_per_chunk() const {
    return static_cast<std::uint32_t>(chunk_bytes / kBlockBytes);
  }
};

// What a person may choose at format time; zero means "choose by the size of the device".
struct FormatSizes {
  std::uint64_t journal_bytes = 0;
  std::uint64_t segment_bytes = 0;
  std::uint64_t chunk_bytes = 0;
  std::uint64_t table_region_bytes = 0;
  std::uint32_t lane_count = 0;
};

// The smallest device that can be formatted with default sizes, in bytes.
inline constexpr std::uint64_t kDeviceBytesMin = 64 * kMiB;

Result<StoreGeometry> choose_geometry(std::uint64_t device_bytes, const FormatSizes& sizes);
// Checks what a superblock claims: nothing overlaps, nothing is beyond the device, limits hold.
Result<void> validate_geometry(const StoreGeometry& geometry);

}  // namespace sarsen
