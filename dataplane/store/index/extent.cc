#include "dataplane/store/index/extent.h"

#include <algorithm>

#include "dataplane/base/assert.h"

namespace sarsen {
namespace {

bool acceptable_options(const Extent& extent) {
  const ExtentOptions& options = *extent.options;
  if (options.empty()) return false;
  if (options.reference && !extent.shared) return false;
  if (const auto& unit = options.compression) {
    const bool within_unit =
        unit->unit_blocks <= kLeafBlocks &&
        std::uint32_t{unit->unit_offset} + extent.block_count <= unit->unit_blocks;
    if (unit->codec == 0 || !within_unit || unit->stored_bytes == 0 ||
        unit->stored_bytes > unit->unit_blocks * kBlockBytes) {
      return false;
    }
  }
  return !options.encryption || options.encryption->seals.size() == extent.stored_blocks();
}

}  // namespace

std::uint32_t Extent::stored_blocks() const {
  const Compression* unit = compression();
  if (unit == nullptr) return block_count;
  return static_cast<std::uint32_t>((std::uint64_t{unit->stored_bytes} + kBlockBytes - 1) /
                                    kBlockBytes);
}

bool Extent::operator==(const Extent& other) const {
  const bool same_options =
      options == other.options || (options && other.options && *options == *other.options);
  return first_block == other.first_block && block_count == other.block_count &&
         shared == other.shared && corrupt == other.corrupt && device_block == other.device_block &&
         lane_sequence == other.lane_sequence && pg_epoch == other.pg_epoch &&
         pg_sequence == other.pg_sequence && change_generation == other.change_generation &&
         checksums == other.checksums && same_options;
}

bool acceptable(const Extent& extent) {
  if (extent.block_count == 0 || extent.end_block() > kLeafBlocks) return false;
  if (extent.options && !acceptable_options(extent)) return false;
  const std::uint32_t stored = extent.stored_blocks();
  return extent.checksums.size() == stored &&
         extent.device_block.value <= kDeviceBlocksMax - stored;
}

Extent slice(const Extent& extent, std::uint32_t first, std::uint32_t count) {
  SARSEN_ASSERT(count > 0 && extent.first_block <= first && first + count <= extent.end_block(),
                "a slice is part of its extent");
  const std::uint32_t skipped = first - extent.first_block;
  if (skipped == 0 && count == extent.block_count) return extent;
  Extent piece = extent;
  piece.first_block = static_cast<std::uint8_t>(first);
  piece.block_count = static_cast<std::uint8_t>(count);
  if (const Compression* unit = extent.compression()) {
    auto options = std::make_shared<ExtentOptions>(*extent.options);
    options->compression->unit_offset = static_cast<std::uint8_t>(unit->unit_offset + skipped);
    piece.options = std::move(options);
    return piece;
  }
  piece.device_block = BlockIndex(extent.device_block.value + skipped);
  const auto* checksums = extent.checksums.data() + skipped;
  piece.checksums.assign(checksums, checksums + count);
  if (extent.options && extent.options->encryption) {
    auto options = std::make_shared<ExtentOptions>(*extent.options);
    const auto seals = extent.options->encryption->seals.begin() + skipped;
    options->encryption->seals.assign(seals, seals + count);
    piece.options = std::move(options);
  }
  return piece;
}

}  // namespace sarsen
