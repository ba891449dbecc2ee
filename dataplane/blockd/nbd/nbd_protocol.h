// Numbers of the NBD protocol (fixed newstyle handshake, structured replies), and nothing else.
//
// Source: "The NBD protocol", doc/proto.md of the NetworkBlockDevice project. All integers on the
// wire are big-endian. What each is for is said in our own words; the specification decides.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sarsen::nbd {

// ------------------------------------------------------------------------------------- handshake

inline constexpr std::uint64_t kGreetingMagic = 0x4e42444d41474943;  // "NBDMAGIC"
inline constexpr std::uint64_t kOptionMagic = 0x49484156454f5054;    // "IHAVEOPT"
inline constexpr std::uint64_t kOptionReplyMagic = 0x0003e889045565a9;

inline constexpr std::size_t kGreetingBytes = 18;
inline constexpr std::size_t kClientFlagsBytes = 4;
inline constexpr std::size_t kOptionHeaderBytes = 16;
inline constexpr std::size_t kOptionReplyHeaderBytes = 20;
// Trailing zeros of the answer to EXPORT_NAME, unless both sides agreed to leave them out.
inline constexpr std::size_t kExportNameZeroes = 124;
// No string of the handshake may be longer.
inline constexpr std::size_t kStringBytesMax = 4096;

// Handshake flags of the server; the client answers with the same bits in 32.
inline constexpr std::uint16_t kFixedNewstyle = 1u << 0;
inline constexpr std::uint16_t kNoZeroes = 1u << 1;

enum class Option : std::uint32_t {
  export_name = 1,  // choose an export; cannot be refused, only hung up on
  abort = 2,
  list = 3,
  starttls = 5,
  info = 6,
  go = 7,
  structured_reply = 8,
  list_meta_context = 9,
  set_meta_context = 10,
  extended_headers = 11,
};

enum class OptionReply : std::uint32_t {
  ack = 1,
  server = 2,  // one export of a list
  info = 3,
  meta_context = 4,
  // Bit 31 is set in refusals; their payload is a sentence for people.
  unsupported = 0x80000001,
  policy = 0x80000002,
  invalid = 0x80000003,
  platform = 0x80000004,
  tls_required = 0x80000005,
  unknown_export = 0x80000006,
  shutdown = 0x80000007,
  block_size_required = 0x80000008,
  too_big = 0x80000009,
};

enum class InfoType : std::uint16_t {
  export_size_and_flags = 0,
  name = 1,
  description = 2,
  block_size = 3,
};

// Transmission flags: what an export can do.
inline constexpr std::uint16_t kHasFlags = 1u << 0;
inline constexpr std::uint16_t kReadOnly = 1u << 1;
inline constexpr std::uint16_t kSendFlush = 1u << 2;
inline constexpr std::uint16_t kSendFua = 1u << 3;
inline constexpr std::uint16_t kRotational = 1u << 4;
inline constexpr std::uint16_t kSendTrim = 1u << 5;
inline constexpr std::uint16_t kSendWriteZeroes = 1u << 6;
inline constexpr std::uint16_t kSendDontFragment = 1u << 7;
inline constexpr std::uint16_t kCanMultiConn = 1u << 8;
inline constexpr std::uint16_t kSendCache = 1u << 10;
inline constexpr std::uint16_t kSendFastZero = 1u << 11;

// ---------------------------------------------------------------------------------- transmission

inline constexpr std::uint32_t kRequestMagic = 0x25609513;
inline constexpr std::uint32_t kSimpleReplyMagic = 0x67446698;
inline constexpr std::uint32_t kStructuredReplyMagic = 0x668e33ef;

inline constexpr std::size_t kRequestBytes = 28;
inline constexpr std::size_t kSimpleReplyBytes = 16;
inline constexpr std::size_t kChunkHeaderBytes = 20;

enum class Command : std::uint16_t {
  read = 0,
  write = 1,
  disconnect = 2,
  flush = 3,
  trim = 4,
  cache = 5,
  write_zeroes = 6,
  block_status = 7,
};

// Flags of a request.
inline constexpr std::uint16_t kCommandFua = 1u << 0;
inline constexpr std::uint16_t kCommandNoHole = 1u << 1;        // write_zeroes: keep the space
inline constexpr std::uint16_t kCommandDontFragment = 1u << 2;  // read: one content chunk
inline constexpr std::uint16_t kCommandReqOne = 1u << 3;        // block_status: one descriptor
inline constexpr std::uint16_t kCommandFastZero = 1u << 4;      // write_zeroes: fail if slow

inline constexpr std::uint16_t kChunkDone = 1u << 0;

enum class ChunkType : std::uint16_t {
  none = 0,
  offset_data = 1,
  offset_hole = 2,
  block_status = 5,
  error = 0x8001,
  error_offset = 0x8002,
};

// The errno-like values that a reply may carry; they are the protocol's, not the host's.
enum class Errno : std::uint32_t {
  none = 0,
  not_permitted = 1,   // EPERM
  io = 5,              // EIO
  no_memory = 12,      // ENOMEM
  invalid = 22,        // EINVAL
  no_space = 28,       // ENOSPC
  overflow = 75,       // EOVERFLOW
  not_supported = 95,  // ENOTSUP
  shutdown = 108,      // ESHUTDOWN
};

// States of the "base:allocation" metadata context.
inline constexpr std::uint32_t kStateHole = 1u << 0;
inline constexpr std::uint32_t kStateZero = 1u << 1;

}  // namespace sarsen::nbd
