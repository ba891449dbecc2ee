#include "dataplane/store/geometry.h"

#include <algorithm>
#include <bit>
#include <string>

#include "dataplane/store/error.h"

namespace sarsen {
namespace {

constexpr std::uint32_t kSegmentsMin = 4;
constexpr std::uint32_t kChunksMin = 8;
constexpr std::uint32_t kLanesMax = 1024;
constexpr std::uint64_t kSegmentBytesMin = 64 * kKiB;
constexpr std::uint64_t kSegmentBytesMax = 1 * kGiB;
constexpr std::uint64_t kChunkBytesMin = 64 * kKiB;
constexpr std::uint64_t kTableRegionBytesMin = 32 * kKiB;

Unexpected invalid(std::string detail) {
  return fail(make_error(StoreError::geometry_invalid, std::move(detail)));
}

// The journal takes 1/32 of the device, at least 16 MiB, at most 2 GiB: enough to turn minutes of
// random writes into sorted ones, little enough to be replayed in a second.
std::uint64_t default_journal_bytes(std::uint64_t device_bytes) {
  return std::bit_floor(std::clamp(device_bytes / 32, 16 * kMiB, 2 * kGiB));
}

std::uint64_t default_chunk_bytes(std::uint64_t device_bytes) {
  return std::bit_floor(std::clamp(device_bytes / 1024, 1 * kMiB, 64 * kMiB));
}

}  // namespace

Result<StoreGeometry> choose_geometry(std::uint64_t device_bytes, const FormatSizes& sizes) {
  StoreGeometry geometry;
  geometry.device_bytes = round_down(device_bytes, kBlockBytes);
  const bool small_by_choice =
      sizes.journal_bytes != 0 && sizes.chunk_bytes != 0 && sizes.table_region_bytes != 0;
  if (!small_by_choice && device_bytes < kDeviceBytesMin) {
    return fail(make_error(StoreError::device_too_small,
                           std::to_string(device_bytes) + " bytes, at least " +
                               std::to_string(kDeviceBytesMin) + " are needed"));
  }
  const std::uint64_t journal =
      sizes.journal_bytes != 0 ? sizes.journal_bytes : default_journal_bytes(device_bytes);
  geometry.segment_bytes = sizes.segment_bytes != 0
                               ? sizes.segment_bytes
                               : std::clamp(journal / 32, 512 * kKiB, 16 * kMiB);
  geometry.segment_count = static_cast<std::uint32_t>(journal / geometry.segment_bytes);
  geometry.chunk_bytes =
      sizes.chunk_bytes != 0 ? sizes.chunk_bytes : default_chunk_bytes(device_bytes);
  geometry.table_region_bytes = sizes.table_region_bytes != 0
                                    ? sizes.table_region_bytes
                                    : std::clamp(device_bytes / 1024, 1 * kMiB, 16 * kMiB);
  geometry.table_region_bytes = round_up(geometry.table_region_bytes, kBlockBytes);
  geometry.lane_count = sizes.lane_count != 0 ? sizes.lane_count : 8;

  const std::uint64_t fixed = 4 * kSuperblockSpacing + 4 * geometry.table_region_bytes +
                              geometry.segment_count * geometry.segment_bytes;
  if (fixed >= geometry.device_bytes) {
    return fail(make_error(StoreError::device_too_small,
                           std::to_string(device_bytes) + " bytes, journal and tables alone take " +
                               std::to_string(fixed)));
  }
  geometry.chunk_count =
      static_cast<std::uint32_t>((geometry.device_bytes - fixed) / geometry.chunk_bytes);
  SARSEN_TRY(validate_geometry(geometry));
  return geometry;
}

Result<void> validate_geometry(const StoreGeometry& geometry) {
  const auto block_multiple = [](std::uint64_t bytes) { return bytes % kBlockBytes == 0; };
  if (geometry.device_bytes > (std::uint64_t{1} << 56) || !block_multiple(geometry.device_bytes)) {
    return invalid("device_bytes " + std::to_string(geometry.device_bytes));
  }
  if (geometry.segment_bytes < kSegmentBytesMin || geometry.segment_bytes > kSegmentBytesMax ||
      !block_multiple(geometry.segment_bytes)) {
    return invalid("segment_bytes " + std::to_string(geometry.segment_bytes));
  }
  if (geometry.segment_count < kSegmentsMin) {
    return invalid("segment_count " + std::to_string(geometry.segment_count) + ", at least " +
                   std::to_string(kSegmentsMin));
  }
  if (geometry.chunk_bytes < kChunkBytesMin || geometry.chunk_bytes > (1ull << 40) ||
      !block_multiple(geometry.chunk_bytes)) {
    return invalid("chunk_bytes " + std::to_string(geometry.chunk_bytes));
  }
  if (geometry.chunk_count < kChunksMin) {
    return fail(make_error(StoreError::device_too_small,
                           std::to_string(geometry.chunk_count) + " chunks, at least " +
                               std::to_string(kChunksMin) + " are needed"));
  }
  if (geometry.table_region_bytes < kTableRegionBytesMin ||
      geometry.table_region_bytes > 1 * kGiB || !block_multiple(geometry.table_region_bytes)) {
    return invalid("table_region_bytes " + std::to_string(geometry.table_region_bytes));
  }
  if (geometry.lane_count == 0 || geometry.lane_count > kLanesMax) {
    return invalid("lane_count " + std::to_string(geometry.lane_count) + ", 1 to " +
                   std::to_string(kLanesMax));
  }
  // All factors are bounded above, so that this sum cannot wrap: each term is below 2^62.
  const std::uint64_t segments = geometry.segment_count * geometry.segment_bytes;
  if (geometry.chunk_count > (std::uint64_t{1} << 56) / geometry.chunk_bytes) {
    return invalid("chunk_count " + std::to_string(geometry.chunk_count));
  }
  const std::uint64_t chunks = geometry.chunk_count * geometry.chunk_bytes;
  const std::uint64_t total =
      4 * kSuperblockSpacing + 4 * geometry.table_region_bytes + segments + chunks;
  if (total > geometry.device_bytes) {
    return invalid("the parts take " + std::to_string(total) + " bytes of " +
                   std::to_string(geometry.device_bytes));
  }
  return {};
}

}  // namespace sarsen
