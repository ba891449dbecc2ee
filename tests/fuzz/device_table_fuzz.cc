// The device table: payloads of records, and whole regions as a device may hold them. The first
// byte says which. Magic, device and checksum of records in regions are put right, since the fuzzer
// cannot guess them. What opens is consistent, opens again to the same, and can be changed.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "dataplane/base/assert.h"
#include "dataplane/base/crc32c.h"
#include "dataplane/store/metadata/device_table.h"
#include "tests/unit/store/metadata/memory_disk.h"
#include "tests/unit/store/metadata/zone_fixture.h"

namespace sarsen {
namespace {

constexpr std::uint64_t kDeviceBytes = 1 * kMiB;
constexpr std::uint64_t kRegionBytes = 16 * kKiB;

bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

void try_snapshot(std::span<const std::byte> payload) {
  const auto state = decode_snapshot(payload);
  if (!state) return;
  SARSEN_ASSERT(same(encode_snapshot(*state), payload), "one encoding per table");
  // A table is checked only after its geometry agreed with the superblock's.
  if (state->owners.size() < 1000 && state->units_per_chunk() < 1000) (void)state->check();
}

void try_changes(std::span<const std::byte> payload) {
  const auto changes = decode_changes(payload);
  if (!changes) return;
  SARSEN_ASSERT(same(encode_changes(*changes), payload), "one encoding per list of changes");
  TableState state;
  state.chunk_bytes = 256 * kKiB;
  state.unit_bytes = 16 * kKiB;
  state.owners.resize(3);
  for (const TableChange& change : *changes) {
    if (!state.apply(change)) break;
  }
  (void)state.check();
}

// Makes the record at the start of `bytes` one of this device, if its length fits.
void put_right(std::span<std::byte> bytes, std::uint64_t device) {
  TableRecordHeader header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  header.magic = kTableRecordMagic;
  header.version = kTableRecordVersion;
  header.device_hash = device;
  header.payload_bytes %= static_cast<std::uint32_t>(bytes.size());
  const std::size_t size = record_size_bytes(header.payload_bytes);
  if (size > bytes.size()) return;
  std::memcpy(bytes.data(), &header, sizeof(header));
  header.crc32c = crc32c(bytes.subspan(8, size - 8));
  std::memcpy(bytes.data(), &header, sizeof(header));
}

void try_regions(std::span<const std::byte> input) {
  TableGeometry geometry = test::small_geometry(kDeviceBytes, kRegionBytes);
  geometry.metadata_reserve_chunks = 0;
  const std::uint64_t device = device_hash(geometry.device_uuid);
  AlignedBuffer regions(4 * kRegionBytes);
  std::copy_n(input.begin(), std::min(input.size(), regions.size()), regions.data());
  for (std::uint64_t at = 0; at < regions.size(); at += kBlockBytes) {
    put_right(regions.span(at, kRegionBytes - at % kRegionBytes), device);
  }
  test::MemoryDisk disk(kDeviceBytes);
  SARSEN_ASSERT(disk.write(ByteOffset(0), regions.span()).has_value(), "the device works");
  const auto table = DeviceTable::open(disk, geometry);
  if (!table) return;
  const TableState state = (*table)->state();
  SARSEN_ASSERT(state.check().has_value(), "what opens is consistent");
  const auto again = DeviceTable::open(disk, geometry);
  SARSEN_ASSERT(again && (*again)->state() == state, "what opened opens again to the same");
  const auto chunk = (*again)->grant_chunk(ChunkOwner::lane(LaneId(1)));
  if (chunk) {
    SARSEN_ASSERT((*again)->return_chunk(*chunk, ChunkOwner::lane(LaneId(1))).has_value(),
                  "what was granted can be returned");
  }
}

}  // namespace
}  // namespace sarsen

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto input = std::as_bytes(std::span(data + 1, size - 1));
  switch (data[0]) {
    case 0: sarsen::try_snapshot(input); break;
    case 1: sarsen::try_changes(input); break;
    default: sarsen::try_regions(input); break;
  }
  return 0;
}
