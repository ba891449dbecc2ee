// The part of the kernel's FUSE protocol that serves one file: how requests are taken apart, and
// what the header of an older kernel does not name.
//
// Source: include/uapi/linux/fuse.h of Linux 6.9 for the additions; <linux/fuse.h> for the rest.
// Requests come from the kernel and are trusted to be well-formed, but nothing here reads outside
// of a packet: a wrong size is answered with an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include <linux/fuse.h>

#include "dataplane/base/units.h"

namespace sarsen::fuse {

// INIT flag: the kernel can be asked to send again what was in flight, and marks it in `unique`.
inline constexpr std::uint64_t kHasResend = 1ull << 39;
// Set in `unique` of a request that was sent before, maybe to a predecessor that carried it out.
inline constexpr std::uint64_t kUniqueResent = 1ull << 63;
// The notification that asks for it. It has no body.
inline constexpr std::int32_t kNotifyResend = 7;

// The oldest protocol that is spoken: Linux 5.4's, where requests of 1 MiB exist (FUSE_MAX_PAGES).
inline constexpr std::uint32_t kMinorMin = 31;
// Data of one READ or WRITE: what all kernels with FUSE_MAX_PAGES allow (256 pages of 4 KiB).
inline constexpr std::uint32_t kTransferBytesMax = 1u << 20;
// Before the data of a WRITE.
inline constexpr std::size_t kWritePrefixBytes = sizeof(fuse_in_header) + sizeof(fuse_write_in);
static_assert(kWritePrefixBytes == 80);
// A packet is received so that the data of a WRITE starts at a block boundary of the buffer.
inline constexpr std::size_t kPacketOffset = kBlockBytes - kWritePrefixBytes;
inline constexpr std::size_t kReceiveBytes = kBlockBytes + kTransferBytesMax;

inline constexpr std::uint64_t kRootNode = FUSE_ROOT_ID;
inline constexpr std::uint64_t kFileNode = 2;
inline constexpr std::uint64_t kFileHandle = 1;
// Seconds for which the kernel need not ask again: names and attributes change by our notice only.
inline constexpr std::uint64_t kValidSeconds = 1u << 30;

struct Request {
  fuse_in_header header{};
  std::span<const std::byte> body;

  std::uint32_t opcode() const { return header.opcode; }
  bool resent() const { return (header.unique & kUniqueResent) != 0; }
  // The fixed part of the body, or nothing when it is too short for one.
  template <typename Body>
  std::optional<Body> as() const {
    if (body.size() < sizeof(Body)) return std::nullopt;
    Body fixed;
    std::memcpy(&fixed, body.data(), sizeof(Body));
    return fixed;
  }
  // A body that is one name, as in LOOKUP.
  std::string_view name() const {
    const auto* text = reinterpret_cast<const char*>(body.data());
    const std::string_view all(text, body.size());
    return all.substr(0, all.find('\0'));
  }
};

// Borrows `packet`. Nothing: not a request.
inline std::optional<Request> parse_request(std::span<const std::byte> packet) {
  Request request;
  if (packet.size() < sizeof(request.header)) return std::nullopt;
  std::memcpy(&request.header, packet.data(), sizeof(request.header));
  if (request.header.len != packet.size()) return std::nullopt;
  request.body = packet.subspan(sizeof(request.header));
  return request;
}

// What was agreed with the kernel when the connection was made. A server that takes the connection
// over needs it, because INIT is sent once.
struct Negotiated {
  std::uint32_t minor = 0;
  std::uint64_t flags = 0;  // of the kernel
  std::uint32_t transfer_bytes_max = 0;

  bool can_resend() const { return (flags & kHasResend) != 0; }
};

struct InitAnswer {
  fuse_init_out body{};
  Negotiated negotiated;
};

// The answer to INIT; nothing when the kernel speaks an older protocol than kMinorMin. A kernel
// with a newer major is answered with ours and asks again: then `negotiated.minor` is 0.
std::optional<InitAnswer> answer_init(const Request& request);

}  // namespace sarsen::fuse
