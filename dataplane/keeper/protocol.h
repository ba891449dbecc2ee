// The keeper's protocol, version 1. Frozen: dataplane/docs/keeper_protocol.md is the contract, this
// file is its transcript, and a golden-bytes test holds the two together.
//
// One packet of a SOCK_SEQPACKET socket is one Message, followed by `state_bytes` of opaque state,
// with descriptors in SCM_RIGHTS. A client sends one request and reads one reply.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace sarsen::keeper {

inline constexpr std::uint32_t kMagic = 0x50454b53;  // "SKEP" on the wire
inline constexpr std::uint16_t kVersion = 1;
inline constexpr std::uint32_t kStateBytesMax = 64 * 1024;
inline constexpr std::uint32_t kDescriptorsMax = 64;  // of one entry
inline constexpr std::uint32_t kEntriesMax = 1024;

enum class Verb : std::uint16_t {
  hello = 1,    // reply.value: the keeper's incarnation, different after each start
  put = 2,      // stores or replaces name -> (kind, value, state, descriptors)
  get = 3,      // gives it back, with descriptors
  list = 4,     // the first entry whose name is greater than `name`, without state and descriptors
  drop = 5,     // closes the descriptors and forgets the name
  session = 6,  // reply.value: a number greater than `value` and than every earlier answer
  fail = 7,     // makes the device answer with errors, server or not; see the document
};

enum class Status : std::uint32_t {
  ok = 0,
  bad_request = 1,  // malformed, or an unknown verb
  bad_version = 2,  // not version 1
  not_found = 3,    // no entry of that name; for list: no further entry
  full = 4,         // kEntriesMax names are held
  no_memory = 5,    // the state could not be kept
  unsupported = 6,  // fail() of a kind that the keeper cannot end by itself
  not_aborted =
      7,  // fail(): descriptors were closed, but the kernel's abort switch was not reached
};

inline constexpr std::uint32_t kFlagFailed = 1;  // in replies to get and list: fail() was called

// A kind of entry: what its descriptors and its value mean. The keeper knows only this one.
// Descriptors: 0 the /dev/fuse connection, 1 the mount. Value: the connection's number in fusectl.
inline constexpr std::string_view kKindFuse = "fuse";

// Little-endian. Texts are padded with zeros and end with at least one.
struct Message {
  std::uint32_t magic = kMagic;
  std::uint16_t version = kVersion;
  std::uint16_t verb = 0;
  std::uint64_t value = 0;
  std::uint32_t state_bytes = 0;
  std::uint32_t descriptor_count = 0;
  std::uint32_t status = 0;  // zero in requests
  std::uint32_t flags = 0;   // zero in requests
  char kind[32] = {};
  char name[256] = {};
};
static_assert(std::endian::native == std::endian::little);
static_assert(std::is_trivially_copyable_v<Message> && sizeof(Message) == 320);
static_assert(offsetof(Message, version) == 4 && offsetof(Message, verb) == 6);
static_assert(offsetof(Message, value) == 8 && offsetof(Message, state_bytes) == 16);
static_assert(offsetof(Message, descriptor_count) == 20 && offsetof(Message, status) == 24);
static_assert(offsetof(Message, flags) == 28 && offsetof(Message, kind) == 32);
static_assert(offsetof(Message, name) == 64);

inline constexpr std::size_t kPacketBytesMax = sizeof(Message) + kStateBytesMax;

}  // namespace sarsen::keeper
