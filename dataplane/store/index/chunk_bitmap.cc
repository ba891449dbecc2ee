#include "dataplane/store/index/chunk_bitmap.h"

#include <algorithm>
#include <string>
#include <utility>

#include "dataplane/base/assert.h"
#include "dataplane/base/codec.h"
#include "dataplane/base/crc32c.h"
#include "dataplane/store/index/big_endian.h"
#include "dataplane/store/index/error.h"
#include "dataplane/store/index/varint.h"

namespace sarsen {
namespace {

enum class Kind : std::uint8_t { raw = 0, runs = 1 };

constexpr std::size_t kChecksumBytes = sizeof(std::uint32_t);

std::size_t raw_bytes(std::uint32_t blocks) {
  return (std::size_t{blocks} + 7) / 8;
}

// Calls visit(length) for each run: free, used, free, ... The first may be empty, no other is.
template <typename Visit>
void each_run(const BlockBitmap& used, Visit visit) {
  std::uint32_t at = 0;
  bool free = true;
  while (at < used.size()) {
    const std::uint32_t end =
        free ? used.next_set(at, used.size()) : used.next_clear(at, used.size());
    visit(end - at);
    at = end;
    free = !free;
  }
}

std::size_t run_bytes(const BlockBitmap& used) {
  std::size_t bytes = 0;
  each_run(used, [&](std::uint32_t length) { bytes += varint_bytes(length); });
  return bytes;
}

void write_raw(ByteWriter& writer, const BlockBitmap& used) {
  const auto words = used.words();
  for (std::size_t i = 0; i < raw_bytes(used.size()); ++i) {
    writer.u8(static_cast<std::uint8_t>(words[i / 8] >> 8 * (i % 8)));
  }
}

void read_raw(ByteReader& reader, BlockBitmap& used) {
  for (std::uint32_t at = 0; at < used.size(); at += 8) {
    const std::uint32_t byte = reader.u8();
    const std::uint32_t bits = std::min(8u, used.size() - at);
    if (byte >> bits != 0) return reader.mark_failed();
    for (std::uint32_t bit = 0; bit < bits; ++bit) {
      if ((byte >> bit & 1) != 0) used.set(at + bit, 1);
    }
  }
}

void read_runs(ByteReader& reader, BlockBitmap& used) {
  std::uint32_t at = 0;
  bool free = true;
  while (at < used.size() && reader.ok()) {
    const std::uint64_t length = read_varint(reader);
    const bool may_be_empty = free && at == 0;  // block 0 is used
    if (length > used.size() - at || (length == 0 && !may_be_empty)) return reader.mark_failed();
    if (!free) used.set(at, static_cast<std::uint32_t>(length));
    at += static_cast<std::uint32_t>(length);
    free = !free;
  }
}

}  // namespace

ChunkKeyBytes encode_chunk_key(LaneId lane, ChunkIndex chunk) {
  ChunkKeyBytes bytes;
  store_big_endian(bytes.data(), lane.value);
  store_big_endian(bytes.data() + 4, chunk.value);
  return bytes;
}

Result<ChunkKey> decode_chunk_key(std::span<const std::byte> bytes) {
  if (bytes.size() != kChunkKeyBytes) {
    return fail(make_error(IndexError::key_malformed,
                           "length " + std::to_string(bytes.size()) + ", not 8"));
  }
  return ChunkKey{LaneId(load_big_endian<std::uint32_t>(bytes.data())),
                  ChunkIndex(load_big_endian<std::uint32_t>(bytes.data() + 4))};
}

std::vector<std::byte> encode_chunk_bitmap(const BlockBitmap& used,
                                           std::span<const std::byte> key) {
  const std::size_t runs = run_bytes(used);
  const std::size_t raw = raw_bytes(used.size());
  const Kind kind = runs <= raw ? Kind::runs : Kind::raw;
  std::vector<std::byte> value(2 + varint_bytes(used.size()) + std::min(runs, raw) +
                               kChecksumBytes);
  ByteWriter writer(value);
  writer.u8(kChunkBitmapVersion);
  writer.put(kind);
  write_varint(writer, used.size());
  if (kind == Kind::raw) {
    write_raw(writer, used);
  } else {
    each_run(used, [&](std::uint32_t length) { write_varint(writer, length); });
  }
  writer.u32(crc32c(writer.written(), crc32c(key)));
  SARSEN_ASSERT(writer.ok() && writer.remaining() == 0, "the length was computed before");
  return value;
}

Result<BlockBitmap> decode_chunk_bitmap(std::span<const std::byte> value,
                                        std::span<const std::byte> key, std::uint32_t blocks) {
  const auto refused = [](IndexError code, std::string why) {
    return fail(make_error(code, "chunk bitmap: " + std::move(why)));
  };
  if (value.size() < 2 + kChecksumBytes) return refused(IndexError::value_corrupt, "too short");
  const auto body = value.first(value.size() - kChecksumBytes);
  const auto stored = load_little_endian<std::uint32_t>(value.data() + body.size());
  if (stored != crc32c(body, crc32c(key))) return refused(IndexError::value_corrupt, "checksum");

  ByteReader reader(body);
  const std::uint8_t version = reader.u8();
  if (version != kChunkBitmapVersion) {
    return refused(IndexError::format_unsupported,
                   "version " + std::to_string(version) + ", this build knows 1");
  }
  const auto kind = reader.get<Kind>();
  if (const std::uint64_t count = read_varint(reader); count != blocks) {
    return refused(IndexError::value_malformed,
                   "of " + std::to_string(count) + " blocks, not " + std::to_string(blocks));
  }
  BlockBitmap used(blocks);
  switch (kind) {
    case Kind::raw: read_raw(reader, used); break;
    case Kind::runs: read_runs(reader, used); break;
    default: return refused(IndexError::value_malformed, "unknown kind");
  }
  if (!reader.finished()) return refused(IndexError::value_malformed, "length");
  const Kind shorter = run_bytes(used) <= raw_bytes(blocks) ? Kind::runs : Kind::raw;
  if (kind != shorter) return refused(IndexError::value_malformed, "not the shorter kind");
  return used;
}

}  // namespace sarsen
