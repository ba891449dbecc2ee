#include "dataplane/store/index/index_leaf_codec.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "dataplane/base/assert.h"
#include "dataplane/base/crc32c.h"
#include "dataplane/store/index/error.h"

namespace sarsen {
namespace {

// What of an extent is as in the one before it (for the first: zero), and its flags.
enum Tag : std::uint8_t {
  kSameHome = 1 << 0,
  kSameEpoch = 1 << 1,
  kSameGeneration = 1 << 2,
  kShared = 1 << 3,
  kCorrupt = 1 << 4,
  kHasOptions = 1 << 5,
  kNextBlock = 1 << 6,  // one block, directly behind the extent before it: no placement byte
};
constexpr std::uint8_t kTagsKnown = 0x7f;

enum Option : std::uint8_t {
  kCompression = 1 << 0,
  kEncryption = 1 << 1,
  kReference = 1 << 2,
  kErasure = 1 << 3,
};
constexpr std::uint8_t kOptionsKnown = 0x0f;

constexpr std::size_t kChecksumBytes = sizeof(std::uint32_t);
static_assert(kLeafBlocks <= 16, "a placement byte holds two numbers of four bits");

// What an extent is compared with. The home of an extent is where block 0 of the leaf would be on
// the device: one home area, one home, however many writes filled it.
struct Context {
  std::uint64_t lane_sequence_min = 0;
  std::uint64_t pg_sequence_min = 0;
  std::uint64_t home = 0;
  std::uint64_t epoch = 0;
  std::uint64_t generation = 0;
  std::uint32_t end_block = 0;

  void advance(const Extent& extent) {
    home = extent.device_block.value - extent.first_block;
    epoch = extent.pg_epoch.value;
    generation = extent.change_generation;
    end_block = extent.end_block();
  }
};

std::uint8_t placement(std::uint32_t first, std::uint32_t count) {
  return static_cast<std::uint8_t>(first << 4 | (count - 1));
}

std::uint8_t option_bits(const Extent& extent) {
  if (!extent.options) return 0;
  const ExtentOptions& options = *extent.options;
  return static_cast<std::uint8_t>(
      (options.compression ? kCompression : 0) | (options.encryption ? kEncryption : 0) |
      (options.reference ? kReference : 0) | (options.erasure ? kErasure : 0));
}

void write_options(ByteWriter& writer, const ExtentOptions& options) {
  if (const auto& unit = options.compression) {
    writer.u8(unit->codec);
    write_varint(writer, unit->stored_bytes);
    writer.u8(placement(unit->unit_offset, unit->unit_blocks));
  }
  if (options.encryption) write_varint(writer, options.encryption->key_id);
  if (options.reference) write_varint(writer, *options.reference);
  if (const auto& erasure = options.erasure) {
    writer.u8(erasure->shard);
    write_varint(writer, erasure->stripe_version);
  }
}

void write_extent(ByteWriter& writer, const Extent& extent, const Context& context) {
  const std::uint64_t home = extent.device_block.value - extent.first_block;
  const bool next_block = extent.first_block == context.end_block && extent.block_count == 1;
  const std::uint8_t options = option_bits(extent);
  const std::uint8_t tag = static_cast<std::uint8_t>(
      (home == context.home ? kSameHome : 0) |
      (extent.pg_epoch.value == context.epoch ? kSameEpoch : 0) |
      (extent.change_generation == context.generation ? kSameGeneration : 0) |
      (extent.shared ? kShared : 0) | (extent.corrupt ? kCorrupt : 0) |
      (options != 0 ? kHasOptions : 0) | (next_block ? kNextBlock : 0));
  writer.u8(tag);
  if (!next_block) writer.u8(placement(extent.first_block, extent.block_count));
  if (options != 0) writer.u8(options);
  if ((tag & kSameHome) == 0) write_varint(writer, zigzag_difference(context.home, home));
  if ((tag & kSameEpoch) == 0) {
    write_varint(writer, zigzag_difference(context.epoch, extent.pg_epoch.value));
  }
  if ((tag & kSameGeneration) == 0) {
    write_varint(writer, zigzag_difference(context.generation, extent.change_generation));
  }
  write_varint(writer, extent.lane_sequence.value - context.lane_sequence_min);
  write_varint(writer, extent.pg_sequence.value - context.pg_sequence_min);
  if (options != 0) write_options(writer, *extent.options);
  for (const std::uint32_t checksum : extent.checksums) writer.u32(checksum);
  if ((options & kEncryption) != 0) {
    for (const BlockSeal& seal : extent.options->encryption->seals) {
      writer.bytes(seal.nonce);
      writer.bytes(seal.tag);
    }
  }
}

// A number that differs from `previous`; a tag bit would have said that it does not.
std::uint64_t read_changed(ByteReader& reader, std::uint64_t previous) {
  const std::uint64_t zigzag = read_varint(reader);
  if (zigzag == 0) reader.mark_failed();
  return apply_zigzag(previous, zigzag);
}

std::uint64_t read_above(ByteReader& reader, std::uint64_t minimum) {
  const std::uint64_t value = minimum + read_varint(reader);
  if (value < minimum) reader.mark_failed();
  return value;
}

void read_placement(ByteReader& reader, std::uint8_t& first, std::uint8_t& count) {
  const std::uint8_t byte = reader.u8();
  first = byte >> 4;
  count = static_cast<std::uint8_t>((byte & 0x0f) + 1);
}

std::shared_ptr<ExtentOptions> read_options(ByteReader& reader, std::uint8_t bits) {
  auto options = std::make_shared<ExtentOptions>();
  if ((bits & kCompression) != 0) {
    Compression& unit = options->compression.emplace();
    unit.codec = reader.u8();
    const std::uint64_t stored_bytes = read_varint(reader);
    if (stored_bytes > kLeafBlocks * kBlockBytes) reader.mark_failed();
    unit.stored_bytes = static_cast<std::uint32_t>(stored_bytes);
    read_placement(reader, unit.unit_offset, unit.unit_blocks);
  }
  if ((bits & kEncryption) != 0) options->encryption.emplace().key_id = read_varint(reader);
  if ((bits & kReference) != 0) options->reference = read_varint(reader);
  if ((bits & kErasure) != 0) {
    ErasureShard& erasure = options->erasure.emplace();
    erasure.shard = reader.u8();
    erasure.stripe_version = read_varint(reader);
  }
  return options;
}

void read_blocks(ByteReader& reader, Extent& extent, ExtentOptions* options) {
  const std::uint32_t stored = extent.stored_blocks();
  if (!reader.ok() || stored > kLeafBlocks) return reader.mark_failed();
  extent.checksums.resize(stored);
  for (std::uint32_t& checksum : extent.checksums) checksum = reader.u32();
  if (options == nullptr || !options->encryption) return;
  options->encryption->seals.resize(stored);
  for (BlockSeal& seal : options->encryption->seals) {
    reader.copy_to(seal.nonce);
    reader.copy_to(seal.tag);
  }
}

Extent read_extent(ByteReader& reader, const Context& context) {
  Extent extent;
  const std::uint8_t tag = reader.u8();
  if ((tag & ~kTagsKnown) != 0) reader.mark_failed();
  extent.shared = (tag & kShared) != 0;
  extent.corrupt = (tag & kCorrupt) != 0;
  if ((tag & kNextBlock) != 0) {
    extent.first_block = static_cast<std::uint8_t>(context.end_block);
    extent.block_count = 1;
  } else {
    read_placement(reader, extent.first_block, extent.block_count);
    // Such an extent has kNextBlock and no placement byte.
    if (extent.first_block == context.end_block && extent.block_count == 1) reader.mark_failed();
  }
  std::uint8_t bits = 0;
  if ((tag & kHasOptions) != 0) {
    bits = reader.u8();
    if (bits == 0 || (bits & ~kOptionsKnown) != 0) reader.mark_failed();
  }
  const std::uint64_t home =
      (tag & kSameHome) != 0 ? context.home : read_changed(reader, context.home);
  extent.device_block = BlockIndex(home + extent.first_block);
  extent.pg_epoch =
      PgEpoch((tag & kSameEpoch) != 0 ? context.epoch : read_changed(reader, context.epoch));
  extent.change_generation =
      (tag & kSameGeneration) != 0 ? context.generation : read_changed(reader, context.generation);
  extent.lane_sequence = LaneSequence(read_above(reader, context.lane_sequence_min));
  extent.pg_sequence = PgSequence(read_above(reader, context.pg_sequence_min));
  std::shared_ptr<ExtentOptions> options;
  if (bits != 0) extent.options = options = read_options(reader, bits);
  read_blocks(reader, extent, options.get());
  return extent;
}

Unexpected malformed(const char* why) {
  return fail(make_error(IndexError::value_malformed, std::string("leaf: ") + why));
}

}  // namespace

std::span<const std::byte> encode_leaf(const IndexLeaf& leaf, std::span<const std::byte> key,
                                       LeafValueBuffer& buffer) {
  ByteWriter writer(buffer);
  const auto extents = leaf.extents();
  writer.u8(kLeafVersion);
  writer.u8(static_cast<std::uint8_t>(extents.size()));
  if (!extents.empty()) {
    Context context;
    context.lane_sequence_min = extents[0].lane_sequence.value;
    context.pg_sequence_min = extents[0].pg_sequence.value;
    for (const Extent& extent : extents) {
      context.lane_sequence_min = std::min(context.lane_sequence_min, extent.lane_sequence.value);
      context.pg_sequence_min = std::min(context.pg_sequence_min, extent.pg_sequence.value);
    }
    write_varint(writer, context.lane_sequence_min);
    write_varint(writer, context.pg_sequence_min);
    for (const Extent& extent : extents) {
      write_extent(writer, extent, context);
      context.advance(extent);
    }
  }
  writer.u32(crc32c(writer.written(), crc32c(key)));
  SARSEN_ASSERT(writer.ok(), "kLeafValueBytesMax is the longest value");
  return writer.written();
}

Result<IndexLeaf> decode_leaf(std::span<const std::byte> value, std::span<const std::byte> key) {
  if (value.size() < 2 + kChecksumBytes) {
    return fail(make_error(IndexError::value_corrupt,
                           "leaf: " + std::to_string(value.size()) + " bytes are too few"));
  }
  const auto body = value.first(value.size() - kChecksumBytes);
  const auto stored = load_little_endian<std::uint32_t>(value.data() + body.size());
  if (stored != crc32c(body, crc32c(key)))
    return fail(make_error(IndexError::value_corrupt, "leaf"));

  ByteReader reader(body);
  const std::uint8_t version = reader.u8();
  if (version != kLeafVersion) {
    return fail(make_error(IndexError::format_unsupported,
                           "leaf: version " + std::to_string(version) + ", this build knows 1"));
  }
  const std::uint32_t count = reader.u8();
  if (count > kLeafBlocks) return malformed("too many extents");
  std::vector<Extent> extents;
  extents.reserve(count);
  Context context;
  if (count > 0) {
    context.lane_sequence_min = read_varint(reader);
    context.pg_sequence_min = read_varint(reader);
  }
  bool lane_minimum_seen = count == 0;
  bool pg_minimum_seen = count == 0;
  for (std::uint32_t i = 0; i < count && reader.ok(); ++i) {
    const Extent& extent = extents.emplace_back(read_extent(reader, context));
    lane_minimum_seen |= extent.lane_sequence.value == context.lane_sequence_min;
    pg_minimum_seen |= extent.pg_sequence.value == context.pg_sequence_min;
    context.advance(extent);
  }
  if (!reader.finished()) return malformed("fields and length do not agree");
  if (!lane_minimum_seen || !pg_minimum_seen) return malformed("a base is not the minimum");
  return IndexLeaf::from_extents(std::move(extents));
}

}  // namespace sarsen
