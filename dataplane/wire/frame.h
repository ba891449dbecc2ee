// A frame: header, body, data (docs/wire_protocol.md). Encoding and decoding of the header, no I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/base/result.h"
#include "dataplane/base/units.h"
#include "dataplane/wire/message.h"

namespace sarsen::wire {

inline constexpr std::uint32_t kMagic = 0x52495753;  // bytes "SWIR"
inline constexpr std::uint8_t kVersion = 1;
inline constexpr std::size_t kHeaderBytes = 64;
inline constexpr std::uint32_t kBodyBytesMax = 64 * 1024;
inline constexpr std::uint32_t kDataBytesMax = kObjectBytes;

enum class TrafficClass : std::uint8_t {
  client = 0,
  replication = 1,
  recovery = 2,
  scrub = 3,
  background = 4,
};

struct TraceId {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  bool operator==(const TraceId&) const = default;
};

struct FrameHeader {
  std::uint8_t version = kVersion;
  bool reply = false;
  bool error = false;  // only with `reply`
  MessageType type{};  // may be one that this version does not know
  std::uint32_t body_bytes = 0;
  std::uint32_t data_bytes = 0;
  std::uint32_t body_crc32c = 0;
  std::uint32_t tenant = 0;
  std::uint64_t request_id = 0;
  std::uint64_t deadline_us = 0;  // from when it is sent; 0: none
  TraceId trace;
  TrafficClass traffic_class = TrafficClass::client;
  bool operator==(const FrameHeader&) const = default;
};

// Sets body_bytes and body_crc32c.
void describe_body(FrameHeader& header, std::span<const std::byte> body);

void encode_header(const FrameHeader& header, std::span<std::byte, kHeaderBytes> into);
// Errors: bad_magic, bad_version, bad_header_checksum, too_long, malformed.
Result<FrameHeader> decode_header(std::span<const std::byte, kHeaderBytes> bytes);
// `body` has header.body_bytes bytes. Error: bad_body_checksum.
Result<void> check_body(const FrameHeader& header, std::span<const std::byte> body);

}  // namespace sarsen::wire
