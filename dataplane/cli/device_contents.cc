#include "dataplane/cli/device_contents.h"

#include <algorithm>
#include <array>
#include <memory>

#include <blkid/blkid.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "dataplane/base/codec.h"
#include "dataplane/store/error.h"
#include "dataplane/store/metadata/table_format.h"

namespace sarsen {
namespace {

constexpr std::uint64_t kEdgeBytes = kMiB;
constexpr std::uint64_t kSamples = 256;
constexpr std::uint64_t kPieceBytes = 64 * kKiB;
constexpr int kPiecesMax = 4096;

using Probe = std::unique_ptr<blkid_struct_probe, decltype(&blkid_free_probe)>;

std::string value_of(blkid_probe probe, const char* name) {
  const char* value = nullptr;
  if (blkid_probe_lookup_value(probe, name, &value, nullptr) != 0) return {};
  return value;
}

ForeignSignature signature_of(blkid_probe probe) {
  ForeignSignature found;
  if (const std::string table = value_of(probe, "PTTYPE"); !table.empty()) {
    found.what = table + " partition table";
    found.label = value_of(probe, "PTUUID");
    found.offset = value_of(probe, "PTMAGIC_OFFSET");
    return found;
  }
  const std::string usage = value_of(probe, "USAGE");
  const std::string type = value_of(probe, "TYPE");
  const std::string kind = usage == "filesystem" ? "file system"
                           : usage == "raid"     ? "member of a volume group or RAID"
                           : usage == "crypto"   ? "encrypted volume"
                                                 : "signature";
  found.what = type + " " + kind;
  found.label = value_of(probe, "LABEL");
  if (found.label.empty()) found.label = value_of(probe, "UUID");
  found.offset = value_of(probe, "SBMAGIC_OFFSET");
  return found;
}

std::array<std::uint64_t, kSuperblockCopies> copy_offsets(std::uint64_t device_bytes) {
  return {0, kSuperblockSpacing, device_bytes - 2 * kSuperblockSpacing,
          device_bytes - kSuperblockSpacing};
}

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

Result<void> look_for_store(BlockingDisk& disk, DeviceContents& contents) {
  std::vector<std::byte> block(kBlockBytes);
  FoundStore found;
  bool superblocks_zero = true;
  const auto offsets = copy_offsets(disk.info().size_bytes);
  for (std::uint32_t copy = 0; copy < kSuperblockCopies; ++copy) {
    SARSEN_TRY(disk.read(ByteOffset(offsets[copy]), block));
    superblocks_zero = superblocks_zero && all_zero(block);
    auto superblock = decode_superblock(copy, block);
    if (!superblock) {
      if (!is(superblock.error(), StoreError::not_a_store)) ++found.copies_found;
      continue;
    }
    ++found.copies_found;
    ++found.copies_valid;
    const std::string id = to_string(superblock->device);
    if (std::find(found.device_ids.begin(), found.device_ids.end(), id) == found.device_ids.end()) {
      found.device_ids.push_back(id);
    }
    if (!found.newest || superblock->sequence > found.newest->sequence) found.newest = *superblock;
  }
  if (found.copies_found > 0) contents.store = found;
  SARSEN_TRY(disk.read(ByteOffset(2 * kSuperblockSpacing), block));
  contents.interrupted_format =
      superblocks_zero && load_little_endian<std::uint32_t>(block.data()) == kTableRecordMagic;
  return {};
}

// Notes the first block of [offset, offset + bytes) that is not zero.
Result<void> look_for_data(BlockingDisk& disk, std::uint64_t offset, std::uint64_t bytes,
                           std::optional<std::uint64_t>& data_at) {
  const std::uint64_t from = round_down(offset, kBlockBytes);
  const std::uint64_t to = std::min(disk.info().size_bytes, offset + bytes);
  if (data_at || from >= to) return {};
  std::vector<std::byte> buffer(round_up(to - from, kBlockBytes));
  SARSEN_TRY(disk.read(ByteOffset(from), buffer));
  for (std::size_t at = 0; at < buffer.size(); ++at) {
    if (buffer[at] == std::byte{0}) continue;
    data_at = from + at;
    break;
  }
  return {};
}

Result<void> look_for_unknown_data(int descriptor, BlockingDisk& disk, DeviceContents& contents) {
  const std::uint64_t size = disk.info().size_bytes;
  auto& data_at = contents.data_at;
  SARSEN_TRY(look_for_data(disk, 0, kEdgeBytes, data_at));
  SARSEN_TRY(look_for_data(disk, size - std::min(size, kEdgeBytes), kEdgeBytes, data_at));
  for (std::uint64_t i = 0; i < kSamples && !data_at; ++i) {
    const std::uint64_t offset = round_down(size / kSamples * i, kBlockBytes);
    SARSEN_TRY(look_for_data(disk, offset, kBlockBytes, data_at));
  }
  // Of a file the holes are known: the start of each piece of data.
  off_t at = 0;
  for (int piece = 0; piece < kPiecesMax && !data_at; ++piece) {
    at = lseek(descriptor, at, SEEK_DATA);
    if (at < 0) break;
    SARSEN_TRY(look_for_data(disk, static_cast<std::uint64_t>(at), kPieceBytes, data_at));
    at += static_cast<off_t>(kPieceBytes);
  }
  return {};
}

}  // namespace

Result<std::vector<ForeignSignature>> foreign_signatures(int descriptor, const std::string& name) {
  const Probe probe(blkid_new_probe(), &blkid_free_probe);
  // libblkid reads single sectors into memory of any alignment.
  if (const int flags = fcntl(descriptor, F_GETFL); (flags & O_DIRECT) != 0) {
    fcntl(descriptor, F_SETFL, flags & ~O_DIRECT);
  }
  if (!probe || blkid_probe_set_device(probe.get(), descriptor, 0, 0) != 0) {
    return fail(make_error(RuntimeError::system, "libblkid cannot look at " + name));
  }
  blkid_probe_enable_superblocks(probe.get(), 1);
  blkid_probe_set_superblocks_flags(probe.get(), BLKID_SUBLKS_MAGIC | BLKID_SUBLKS_TYPE |
                                                     BLKID_SUBLKS_USAGE | BLKID_SUBLKS_LABEL |
                                                     BLKID_SUBLKS_UUID | BLKID_SUBLKS_BADCSUM);
  blkid_probe_enable_partitions(probe.get(), 1);
  blkid_probe_set_partitions_flags(probe.get(), BLKID_PARTS_MAGIC | BLKID_PARTS_FORCE_GPT);
  std::vector<ForeignSignature> found;
  for (;;) {
    const int answer = blkid_do_probe(probe.get());
    if (answer == 1) return found;
    if (answer != 0) {
      return fail(make_error(RuntimeError::system, "libblkid failed while it looked at " + name));
    }
    found.push_back(signature_of(probe.get()));
  }
}

Result<DeviceContents> look_at_contents(int descriptor, BlockingDisk& disk) {
  DeviceContents contents;
  auto foreign = foreign_signatures(descriptor, disk.info().name);
  if (!foreign) return fail(foreign.error());
  contents.foreign = *std::move(foreign);
  if (disk.info().size_bytes >= 4 * kSuperblockSpacing) {
    SARSEN_TRY(look_for_store(disk, contents));
  }
  SARSEN_TRY(look_for_unknown_data(descriptor, disk, contents));
  return contents;
}

}  // namespace sarsen
