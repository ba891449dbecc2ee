#include "dataplane/store/superblock.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "dataplane/base/codec.h"
#include "dataplane/base/crc32c.h"
#include "dataplane/store/error.h"

namespace sarsen {
namespace {

// Spells "SARSENSB" on the device.
constexpr std::uint64_t kMagic = 0x42534e4553524153;
constexpr std::size_t kChecksumOffset = kBlockBytes - sizeof(std::uint32_t);
constexpr std::uint64_t kKnownIncompatible = 0;
constexpr int kReadAttempts = 5;

std::uint64_t copy_offset(std::uint32_t copy, std::uint64_t device_bytes) {
  StoreGeometry ends;
  ends.device_bytes = device_bytes;
  return ends.superblocks()[copy].value;
}

}  // namespace

std::string to_string(const Uuid& uuid) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = std::to_integer<unsigned>(uuid[i]);
    text += kHex[byte >> 4];
    text += kHex[byte & 15];
  }
  return text;
}

Uuid make_uuid(Random& random) {
  Uuid uuid;
  random.fill(uuid);
  uuid[6] = (uuid[6] & std::byte{0x0f}) | std::byte{0x40};
  uuid[8] = (uuid[8] & std::byte{0x3f}) | std::byte{0x80};
  return uuid;
}

void encode_superblock(const Superblock& superblock, std::uint32_t copy,
                       std::span<std::byte> block) {
  SARSEN_ASSERT(block.size() == kBlockBytes, "a superblock is one block");
  ByteWriter writer(block);
  writer.u64(kMagic);
  writer.u32(kFormatVersion);
  writer.u32(copy);
  writer.bytes(superblock.device);
  writer.bytes(superblock.cluster);
  writer.u32(superblock.osd_id);
  writer.u32(kBlockBytes);
  writer.u64(superblock.sequence);
  writer.u64(superblock.start_count);
  writer.u64(superblock.features_incompatible);
  writer.u64(superblock.features_read_only);
  writer.u64(superblock.features_compatible);
  writer.i64(superblock.formatted_wall_time_ns);
  writer.u64(superblock.journal_salt);
  const StoreGeometry& geometry = superblock.geometry;
  writer.u64(geometry.device_bytes);
  writer.u64(geometry.table_region_bytes);
  writer.u64(geometry.segment_bytes);
  writer.u32(geometry.segment_count);
  writer.u32(geometry.lane_count);
  writer.u64(geometry.chunk_bytes);
  writer.u32(geometry.chunk_count);
  writer.zeros(kChecksumOffset - writer.offset());
  writer.u32(crc32c(block.first(kChecksumOffset)));
  SARSEN_ASSERT(writer.ok() && writer.remaining() == 0, "a superblock fills its block");
}

Result<Superblock> decode_superblock(std::uint32_t copy, std::span<const std::byte> block) {
  ByteReader reader(block);
  if (reader.u64() != kMagic) return fail(make_error(StoreError::not_a_store));
  if (load_little_endian<std::uint32_t>(block.data() + kChecksumOffset) !=
      crc32c(block.first(kChecksumOffset))) {
    return fail(make_error(StoreError::corrupt_block, "superblock checksum"));
  }
  const std::uint32_t version = reader.u32();
  if (version != kFormatVersion) {
    return fail(make_error(StoreError::format_unsupported, "version " + std::to_string(version) +
                                                               ", this build knows " +
                                                               std::to_string(kFormatVersion)));
  }
  if (reader.u32() != copy) {
    return fail(make_error(StoreError::corrupt_block, "superblock copy in another copy's place"));
  }
  Superblock superblock;
  reader.copy_to(superblock.device);
  reader.copy_to(superblock.cluster);
  superblock.osd_id = reader.u32();
  if (reader.u32() != kBlockBytes) {
    return fail(make_error(StoreError::format_unsupported, "block size"));
  }
  superblock.sequence = reader.u64();
  superblock.start_count = reader.u64();
  superblock.features_incompatible = reader.u64();
  superblock.features_read_only = reader.u64();
  superblock.features_compatible = reader.u64();
  superblock.formatted_wall_time_ns = reader.i64();
  superblock.journal_salt = reader.u64();
  StoreGeometry& geometry = superblock.geometry;
  geometry.device_bytes = reader.u64();
  geometry.table_region_bytes = reader.u64();
  geometry.segment_bytes = reader.u64();
  geometry.segment_count = reader.u32();
  geometry.lane_count = reader.u32();
  geometry.chunk_bytes = reader.u64();
  geometry.chunk_count = reader.u32();
  SARSEN_ASSERT(reader.ok(), "the fields of a superblock fit its block");
  if ((superblock.features_incompatible & ~kKnownIncompatible) != 0) {
    return fail(make_error(StoreError::format_unsupported,
                           "feature bits " + std::to_string(superblock.features_incompatible)));
  }
  SARSEN_TRY(validate_geometry(geometry));
  return superblock;
}

Task<Result<SuperblockReading>> read_superblock(Env& env, Disk& disk) {
  if (disk.info().size_bytes < 4 * kSuperblockSpacing) {
    co_return fail(make_error(StoreError::not_a_store, disk.info().name + " is too small"));
  }
  auto buffer = env.buffers.allocate(kBlockBytes);
  if (!buffer) co_return fail(buffer.error());

  std::array<std::optional<Superblock>, kSuperblockCopies> copies;
  SuperblockReading reading;
  std::optional<Error> unsupported;
  bool any_ours = false;
  for (std::uint32_t copy = 0; copy < kSuperblockCopies; ++copy) {
    const ByteOffset offset(copy_offset(copy, disk.info().size_bytes));
    auto read = co_await disk.read(offset, buffer->span());
    for (int attempt = 1; attempt < kReadAttempts && !read; ++attempt) {
      read = co_await disk.read(offset, buffer->span());
    }
    // A device that is gone says nothing about its copies.
    if (!read && !is(read.error(), RuntimeError::io_error)) co_return fail(read.error());
    if (!read) {
      ++reading.copies_bad;
      continue;
    }
    auto decoded = decode_superblock(copy, buffer->span());
    if (decoded && decoded->geometry.device_bytes <= disk.info().size_bytes) {
      copies[copy] = *decoded;
      continue;
    }
    ++reading.copies_bad;
    if (decoded || !is(decoded.error(), StoreError::not_a_store)) any_ours = true;
    if (!decoded && is(decoded.error(), StoreError::format_unsupported)) {
      unsupported = decoded.error();
    }
  }
  // I-SUPER-1
  const Superblock* best = nullptr;
  for (const auto& candidate : copies) {
    if (!candidate) continue;
    any_ours = true;
    const auto equal = std::count(copies.begin(), copies.end(), candidate);
    if (equal >= 2 && (best == nullptr || candidate->sequence > best->sequence)) {
      best = &*candidate;
    }
  }
  if (best == nullptr) {
    if (unsupported) co_return fail(*unsupported);
    const StoreError code = any_ours ? StoreError::superblock_quorum : StoreError::not_a_store;
    co_return fail(make_error(code, disk.info().name));
  }
  reading.superblock = *best;
  for (std::uint32_t copy = 0; copy < kSuperblockCopies; ++copy) {
    if (!copies[copy]) continue;
    reading.current[copy] = *copies[copy] == *best;
    ++(reading.current[copy] ? reading.copies_good : reading.copies_older);
  }
  reading.second_pair_is_older =
      copies[2] && copies[3] && *copies[2] == *copies[3] && copies[2]->sequence < best->sequence;
  co_return reading;
}

namespace {

Task<Result<void>> write_copy(Env& env, Disk& disk, Superblock superblock, std::uint32_t copy) {
  auto buffer = env.buffers.allocate(kBlockBytes);
  if (!buffer) co_return fail(buffer.error());
  encode_superblock(superblock, copy, buffer->span());
  co_return co_await disk.write(superblock.geometry.superblocks()[copy], buffer->span());
}

}  // namespace

// One copy at a time, each durable before the next is touched: whatever a power failure does to it,
// two others still agree.
Task<Result<void>> prove_superblock(Env& env, Disk& disk, SuperblockReading reading) {
  std::vector<std::uint32_t> order;
  if (reading.second_pair_is_older) {
    // An update was interrupted before its first pair was known to be durable.
    order = {0, 1, 2, 3};
  } else {
    for (std::uint32_t copy = 0; copy < kSuperblockCopies; ++copy) {
      if (!reading.current[copy]) order.push_back(copy);
    }
    // The second pair is touched only when the first is durable: only it may be unproven.
    for (const std::uint32_t copy : {2u, 3u}) {
      if (reading.current[copy]) order.push_back(copy);
    }
  }
  for (const std::uint32_t copy : order) {
    SARSEN_CO_TRY(co_await write_copy(env, disk, reading.superblock, copy));
    SARSEN_CO_TRY(co_await disk.flush());
  }
  co_return Result<void>{};
}

Task<Result<void>> write_superblock(Env& env, Disk& disk, Superblock superblock) {
  for (std::uint32_t copy = 0; copy < kSuperblockCopies; ++copy) {
    SARSEN_CO_TRY(co_await write_copy(env, disk, superblock, copy));
    // I-SUPER-2: the second pair is touched only when the first is durable.
    if (copy % 2 == 1) SARSEN_CO_TRY(co_await disk.flush());
  }
  co_return Result<void>{};
}

}  // namespace sarsen
