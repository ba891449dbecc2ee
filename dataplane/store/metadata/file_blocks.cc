#include "dataplane/store/metadata/file_blocks.h"

#include <algorithm>
#include <cstring>

#include "dataplane/base/assert.h"
#include "dataplane/base/crc32c.h"

namespace sarsen {
namespace {

constexpr std::size_t kChecksummedFrom = offsetof(FileBlockHeader, payload_bytes);

struct Place {
  ByteOffset offset;
  std::uint64_t size_bytes = 0;  // contiguous from there
};

Place locate(const UnitMap& map, const std::vector<UnitExtent>& extents, std::uint64_t block) {
  for (const UnitExtent& extent : extents) {
    const std::uint64_t blocks = std::uint64_t{extent.count} * map.blocks_per_unit();
    if (block < blocks) {
      return {ByteOffset(map.chunk_area.value + std::uint64_t{extent.first} * map.unit_bytes +
                         block * kBlockBytes),
              (blocks - block) * kBlockBytes};
    }
    block -= blocks;
  }
  SARSEN_ASSERT(false, "a block of a file lies in one of its extents");
  return {};
}

}  // namespace

void seal_file_block(std::span<std::byte> block, std::uint32_t device_seed, std::uint64_t serial,
                     std::uint32_t block_index, std::uint16_t payload_bytes) {
  SARSEN_ASSERT(block.size() == kBlockBytes && payload_bytes <= kFileBlockPayloadBytes,
                "a file block has one size");
  std::ranges::fill(block.subspan(sizeof(FileBlockHeader) + payload_bytes), std::byte{0});
  FileBlockHeader header{.crc32c = 0,
                         .payload_bytes = payload_bytes,
                         .version = kFileBlockVersion,
                         .file_serial = serial,
                         .block_index = block_index,
                         .reserved = 0};
  std::memcpy(block.data(), &header, sizeof(header));
  header.crc32c = crc32c(block.subspan(kChecksummedFrom), device_seed);
  std::memcpy(block.data(), &header.crc32c, sizeof(header.crc32c));
}

std::optional<std::span<const std::byte>> open_file_block(std::span<const std::byte> block,
                                                          std::uint32_t device_seed,
                                                          std::uint64_t serial,
                                                          std::uint32_t block_index) {
  FileBlockHeader header;
  std::memcpy(&header, block.data(), sizeof(header));
  if (header.version != kFileBlockVersion || header.file_serial != serial ||
      header.block_index != block_index || header.reserved != 0 ||
      header.payload_bytes > kFileBlockPayloadBytes ||
      header.crc32c != crc32c(block.subspan(kChecksummedFrom), device_seed)) {
    return std::nullopt;
  }
  return block.subspan(sizeof(header), header.payload_bytes);
}

Result<void> UnitMap::write(const std::vector<UnitExtent>& extents, std::uint32_t first_block,
                            std::span<const std::byte> blocks) const {
  while (!blocks.empty()) {
    const Place place = locate(*this, extents, first_block);
    const std::size_t size = std::min<std::uint64_t>(place.size_bytes, blocks.size());
    SARSEN_TRY(disk.write(place.offset, blocks.first(size)));
    blocks = blocks.subspan(size);
    first_block += static_cast<std::uint32_t>(size / kBlockBytes);
  }
  return {};
}

Result<void> UnitMap::read(const std::vector<UnitExtent>& extents, std::uint32_t first_block,
                           std::span<std::byte> blocks) const {
  while (!blocks.empty()) {
    const Place place = locate(*this, extents, first_block);
    const std::size_t size = std::min<std::uint64_t>(place.size_bytes, blocks.size());
    SARSEN_TRY(disk.read(place.offset, blocks.first(size)));
    blocks = blocks.subspan(size);
    first_block += static_cast<std::uint32_t>(size / kBlockBytes);
  }
  return {};
}

}  // namespace sarsen
