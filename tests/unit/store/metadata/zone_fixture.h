// A small formatted device for the tests of the metadata zone.
#pragma once

#include <memory>

#include "dataplane/store/metadata/device_table.h"
#include "dataplane/store/metadata/metadata_files.h"
#include "tests/unit/store/metadata/memory_disk.h"

namespace sarsen::test {

// Table in the first 4 regions of the device, chunks behind them.
inline TableGeometry small_geometry(std::uint64_t device_bytes = 8 * kMiB,
                                    std::uint64_t region_bytes = 32 * kKiB) {
  TableGeometry geometry;
  geometry.device_uuid.fill(std::byte{0x5a});
  geometry.region_bytes = region_bytes;
  geometry.regions = {{{ByteOffset(0), ByteOffset(2 * region_bytes)},
                       {ByteOffset(region_bytes), ByteOffset(3 * region_bytes)}}};
  geometry.chunk_area = ByteOffset(4 * region_bytes);
  geometry.chunk_bytes = 256 * kKiB;
  geometry.unit_bytes = 16 * kKiB;
  geometry.chunk_count =
      static_cast<std::uint32_t>((device_bytes - 4 * region_bytes) / geometry.chunk_bytes);
  geometry.metadata_reserve_chunks = 4;
  return geometry;
}

// Where a block of a metadata file lies on the device.
inline std::uint64_t block_offset(const TableGeometry& geometry, const TableFile& file,
                                  std::size_t copy, std::uint64_t block) {
  const std::uint64_t blocks_per_unit = geometry.unit_bytes / kBlockBytes;
  for (const UnitExtent& extent : file.copies[copy]) {
    const std::uint64_t blocks = extent.count * blocks_per_unit;
    if (block < blocks) {
      return geometry.chunk_area.value + std::uint64_t{extent.first} * geometry.unit_bytes +
             block * kBlockBytes;
    }
    block -= blocks;
  }
  return 0;
}

// A process that uses the device: table and files, in the order in which they die.
struct Zone {
  std::unique_ptr<DeviceTable> table;
  std::unique_ptr<MetadataFiles> files;

  static Result<Zone> open(BlockingDisk& disk, const TableGeometry& geometry) {
    Zone zone;
    auto table = DeviceTable::open(disk, geometry);
    if (!table) return fail(std::move(table).error());
    zone.table = *std::move(table);
    zone.files = MetadataFiles::open(disk, *zone.table);
    return zone;
  }
};

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace sarsen::test
