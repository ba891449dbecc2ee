#include "dataplane/wire/frame.h"

#include <string>

#include "dataplane/base/assert.h"
#include "dataplane/base/codec.h"
#include "dataplane/base/crc32c.h"
#include "dataplane/wire/error.h"

namespace sarsen::wire {
namespace {

constexpr std::uint8_t kFlagReply = 1u << 0;
constexpr std::uint8_t kFlagError = 1u << 1;

// Where the fields stand; the document's table.
constexpr std::size_t kBodyCrcAt = 16;
constexpr std::size_t kRequestIdAt = 24;
constexpr std::size_t kTraceAt = 40;
constexpr std::size_t kClassAt = 56;
constexpr std::size_t kHeaderCrcAt = 60;
static_assert(4 + 1 + 1 + 2 + 4 + 4 == kBodyCrcAt);
static_assert(kBodyCrcAt + 4 + 4 == kRequestIdAt);
static_assert(kRequestIdAt + 8 + 8 == kTraceAt);
static_assert(kTraceAt + 16 == kClassAt);
static_assert(kClassAt + 1 + 3 == kHeaderCrcAt);
static_assert(kHeaderCrcAt + 4 == kHeaderBytes);

}  // namespace

void describe_body(FrameHeader& header, std::span<const std::byte> body) {
  SARSEN_ASSERT(body.size() <= kBodyBytesMax, "bodies are bounded by what they hold");
  header.body_bytes = static_cast<std::uint32_t>(body.size());
  header.body_crc32c = crc32c(body);
}

void encode_header(const FrameHeader& header, std::span<std::byte, kHeaderBytes> into) {
  ByteWriter writer(into);
  const int flags = (header.reply ? kFlagReply : 0) | (header.error ? kFlagError : 0);
  writer.u32(kMagic);
  writer.u8(header.version);
  writer.u8(static_cast<std::uint8_t>(flags));
  writer.put(header.type);
  writer.u32(header.body_bytes);
  writer.u32(header.data_bytes);
  writer.u32(header.body_crc32c);
  writer.u32(header.tenant);
  writer.u64(header.request_id);
  writer.u64(header.deadline_us);
  writer.u64(header.trace.high);
  writer.u64(header.trace.low);
  writer.put(header.traffic_class);
  writer.zeros(3);
  writer.u32(crc32c(into.first<kHeaderCrcAt>()));
  SARSEN_ASSERT(writer.ok() && writer.remaining() == 0, "the header fills its 64 bytes");
}

Result<FrameHeader> decode_header(std::span<const std::byte, kHeaderBytes> bytes) {
  ByteReader reader(bytes);
  if (reader.u32() != kMagic) return fail(make_error(WireError::bad_magic));
  FrameHeader header;
  header.version = reader.u8();
  // Before the checksum: another version may keep it elsewhere.
  if (header.version != kVersion) {
    return fail(make_error(WireError::bad_version, std::to_string(header.version)));
  }
  if (load_little_endian<std::uint32_t>(&bytes[kHeaderCrcAt]) !=
      crc32c(bytes.first<kHeaderCrcAt>())) {
    return fail(make_error(WireError::bad_header_checksum));
  }
  const std::uint8_t flags = reader.u8();
  header.reply = (flags & kFlagReply) != 0;
  header.error = (flags & kFlagError) != 0;
  header.type = reader.get<MessageType>();
  header.body_bytes = reader.u32();
  header.data_bytes = reader.u32();
  header.body_crc32c = reader.u32();
  header.tenant = reader.u32();
  header.request_id = reader.u64();
  header.deadline_us = reader.u64();
  header.trace.high = reader.u64();
  header.trace.low = reader.u64();
  header.traffic_class = reader.get<TrafficClass>();
  reader.zeros(3);
  if (header.body_bytes > kBodyBytesMax || header.data_bytes > kDataBytesMax) {
    return fail(make_error(WireError::too_long, std::to_string(header.body_bytes) + " and " +
                                                    std::to_string(header.data_bytes)));
  }
  const bool flags_known = (flags & ~(kFlagReply | kFlagError)) == 0;
  const bool flags_possible = header.reply || !header.error;
  const bool class_known = header.traffic_class <= TrafficClass::background;
  if (!reader.ok() || !flags_known || !flags_possible || !class_known) {
    return fail(make_error(WireError::malformed, "header"));
  }
  return header;
}

Result<void> check_body(const FrameHeader& header, std::span<const std::byte> body) {
  SARSEN_ASSERT(body.size() == header.body_bytes, "the body is the one that the header describes");
  if (crc32c(body) != header.body_crc32c) return fail(make_error(WireError::bad_body_checksum));
  return {};
}

}  // namespace sarsen::wire
