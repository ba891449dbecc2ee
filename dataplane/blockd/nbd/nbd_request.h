// A request of the transmission phase: parsing, and judging it before anything is done. No I/O.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "dataplane/blockd/nbd/nbd_handshake.h"
#include "dataplane/blockd/nbd/nbd_protocol.h"

namespace sarsen::nbd {

struct Request {
  Command command{};
  std::uint16_t flags = 0;
  std::uint64_t cookie = 0;  // the client's name for it, returned in the reply
  std::uint64_t offset = 0;
  std::uint32_t length = 0;

  bool has(std::uint16_t flag) const { return (flags & flag) != 0; }
  // Bytes that follow the request on the wire, whether or not it is acceptable.
  std::uint32_t payload_bytes() const { return command == Command::write ? length : 0; }
  // Bytes that answering it keeps in memory, apart from small change.
  std::uint32_t buffer_bytes() const {
    return command == Command::write || command == Command::read ? length : 0;
  }
};

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
