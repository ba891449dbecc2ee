// A request of the transmission phase: parsing, and judging it before anything is done. No I/O.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "dataplane/blockd/nbd/nbd_handshake.h"
#include "dataplane/blockd/nbd/nbd_protocol.h"

namespace sarsen::nbd {

// Reads and writes are carried out in segments, cut at multiples of this many bytes of the export,
// each with a buffer of its own. So a long request needs no long stretch of memory, and a write
// needs memory only for what is on its way.
inline constexpr std::uint32_t kSegmentBytes = 1u << 20;

struct Request {
  Command command{};
  std::uint16_t flags = 0;
  std::uint64_t cookie = 0;  // the client's name for it, returned in the reply
  std::uint64_t offset = 0;
  std::uint32_t length = 0;

  bool has(std::uint16_t flag) const { return (flags & flag) != 0; }
  // Bytes that follow the request on the wire, whether or not it is acceptable.
  std::uint32_t payload_bytes() const { return command == Command::write ? length : 0; }
};

// A part of an export that is read or written in one buffer.
struct Segment {
  std::uint64_t offset = 0;
  std::uint32_t length = 0;
};

// The range of a read or write, in order; all of it when it must not be fragmented.
std::vector<Segment> segments_of(const Request& request);

// Nothing when the magic number is wrong: the stream cannot be followed any more.
std::optional<Request> parse_request(std::span<const std::byte, kRequestBytes> bytes);

struct Judgement {
  Errno error = Errno::none;
  std::string_view sentence;  // for people; static

  bool acceptable() const { return error == Errno::none; }
};

// Whether `request` may be carried out on what was negotiated. A command that is not known, or a
// flag that its command does not have, is invalid, as the specification asks.
Judgement judge(const Request& request, const Negotiated& negotiated);

}  // namespace sarsen::nbd
