// The stored form of the used blocks of one chunk: docs/on_disk_format/index.md.
//
// Canonical and salted with its key, like an index leaf. Plain functions; no state.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dataplane/base/result.h"
#include "dataplane/base/units.h"
#include "dataplane/store/index/block_bitmap.h"

namespace sarsen {

// A fixed piece of a device's data space; one lane or the metadata zone owns it.
using ChunkIndex = Strong<struct ChunkIndexTag, std::uint32_t>;

inline constexpr std::uint8_t kChunkBitmapVersion = 1;

// Lane and chunk, big-endian: the chunks of a lane are one key range.
inline constexpr std::size_t kChunkKeyBytes = 8;
using ChunkKeyBytes = std::array<std::byte, kChunkKeyBytes>;
ChunkKeyBytes encode_chunk_key(LaneId lane, ChunkIndex chunk);
struct ChunkKey {
  LaneId lane;
  ChunkIndex chunk;
  bool operator==(const ChunkKey&) const = default;
};
// Error: key_malformed.
Result<ChunkKey> decode_chunk_key(std::span<const std::byte> bytes);

// Runs or raw bits, whichever is shorter; set bits are used blocks.
std::vector<std::byte> encode_chunk_bitmap(const BlockBitmap& used, std::span<const std::byte> key);
// `blocks` is what the geometry says the chunk has, and bounds what is allocated.
// Errors: value_corrupt, value_malformed, format_unsupported.
Result<BlockBitmap> decode_chunk_bitmap(std::span<const std::byte> value,
                                        std::span<const std::byte> key, std::uint32_t blocks);

}  // namespace sarsen
