// The handshake of one connection: bytes of options in, bytes of replies out. No I/O.
//
// Lifecycle  greeting() is sent; accept_client_flags(); then parse_option() and answer() for each
//            option, until a step says transmission or close; then negotiated() is taken.
// Shard      One. answer() waits only for Exports::open().
// Bounds     Option data longer than kOptionBytesMax is never stored: skip it and use
// refuse_long(). Errors     An Error ends the connection. What the protocol can say itself is a
// reply.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/base/result.h"
#include "dataplane/blockd/nbd/nbd_export.h"
#include "dataplane/blockd/nbd/nbd_protocol.h"
#include "dataplane/runtime/task.h"

namespace sarsen::nbd {

// Room for two strings of the greatest length and some queries.
inline constexpr std::uint32_t kOptionBytesMax = 16 * 1024;
// The largest request that carries data, in bytes, as announced to clients.
inline constexpr std::uint32_t kPayloadBytesMax = 32u << 20;
// Requests of this size and alignment need no merge.
inline constexpr std::uint32_t kBlockBytesPreferred = 4096;
// The id by which BLOCK_STATUS replies name "base:allocation".
inline constexpr std::uint32_t kAllocationContextId = 1;
inline constexpr std::string_view kAllocationContext = "base:allocation";

struct OptionHeader {
  Option option{};
  std::uint32_t length = 0;
};

// What both sides agreed on.
struct Negotiated {
  Export opened;
  bool structured_replies = false;
  bool allocation_context = false;
};

struct HandshakeStep {
  enum class Next { more_options, transmission, close };
  std::vector<std::byte> reply;  // to be sent first
  Next next = Next::more_options;
};

// The transmission flags of an export.
std::uint16_t transmission_flags(const Export& opened, bool structured_replies);

class Handshake {
 public:
  explicit Handshake(Exports& exports) : exports_(exports) {}

  static std::array<std::byte, kGreetingBytes> greeting();
  Result<void> accept_client_flags(std::span<const std::byte, kClientFlagsBytes> bytes);
  Result<OptionHeader> parse_option(std::span<const std::byte, kOptionHeaderBytes> bytes) const;

  // `data` has header.length bytes, at most kOptionBytesMax.
  Task<Result<HandshakeStep>> answer(OptionHeader header, std::span<const std::byte> data);
  // Instead of answer(), for an option whose data was too long to be kept. An error when the
  // option cannot be refused.
  Result<HandshakeStep> refuse_long(OptionHeader header) const;

  // After Next::transmission, once.
  Negotiated take_negotiated() { return std::move(negotiated_); }

 private:
  Task<Result<HandshakeStep>> choose_export_old_way(std::span<const std::byte> data);
  Task<HandshakeStep> choose_export(Option option, std::span<const std::byte> data);
  Task<HandshakeStep> meta_context(Option option, std::span<const std::byte> data);
  HandshakeStep list(std::span<const std::byte> data);
  HandshakeStep structured_reply(std::span<const std::byte> data);
  void settle(Export opened);

  Exports& exports_;
  bool fixed_newstyle_ = false;
  bool no_zeroes_ = false;
  Negotiated negotiated_;
  // The export for which "base:allocation" was selected; no other gets it.
  std::optional<std::string> context_export_;
};

}  // namespace sarsen::nbd
