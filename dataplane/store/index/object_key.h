// Names of objects and of index leaves, and their keys in RocksDB.
//
// A leaf key is 34 bytes, all integers big-endian, so that RocksDB's byte order is our order:
//
//   0   4  pool
//   4   4  placement hash, its bits reversed
//   8   8  family
//   16  8  object number
//   24  8  branch
//   32  2  leaf, below kLeavesPerObject
//
// A placement group of a pool with 2^b groups is the set of objects whose hash ends in the b bits
// of the group's number. Reversed, those bits come first: a group is one contiguous key range, and
// splitting it (b to b + 1) cuts the range in the middle (rule S5). Branches of one object are
// neighbours, so that a clone's leaves are near those it shares extents with.
//
// Plain values; no state, no shard.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "dataplane/base/result.h"
#include "dataplane/base/units.h"

namespace sarsen {

// Blocks that one index leaf covers: 64 KiB, so that a random small destage rewrites a few hundred
// bytes of index and not the checksums of a whole object (rule S4).
inline constexpr std::uint32_t kLeafBlocks = 16;
inline constexpr std::uint32_t kLeavesPerObject = kBlocksPerObject / kLeafBlocks;
static_assert(kBlocksPerObject % kLeafBlocks == 0);

struct ObjectKey {
  PoolId pool;
  std::uint64_t family = 0;  // image family: all images that descend from one by snapshot or clone
  std::uint64_t branch = 0;  // the image or snapshot within the family
  std::uint64_t object_number = 0;  // byte offset in the image / kObjectBytes

  bool operator==(const ObjectKey&) const = default;
};

struct LeafKey {
  ObjectKey object;
  std::uint16_t leaf = 0;  // block in the object / kLeafBlocks

  bool operator==(const LeafKey&) const = default;
};

// Decides the placement group of (family, object number). Stable for ever: stored keys and
// placement depend on it. The branch has no part in it, so that clones live with their parents.
//
//   mix(z)  = the finaliser of splitmix64: z ^= z >> 30; z *= 0xbf58476d1ce4e5b9;
//             z ^= z >> 27; z *= 0x94d049bb133111eb; z ^= z >> 31
//   hash    = upper 32 bits of mix(mix(family + g) + g * (object number + 1)), modulo 2^64,
//             g = 0x9e3779b97f4a7c15
std::uint32_t placement_hash(std::uint64_t family, std::uint64_t object_number);
std::uint32_t reverse_bits(std::uint32_t value);

// In key order (the order of encoded keys). Pool, reversed hash, family, object number, branch,
// leaf.
std::strong_ordering key_order(const LeafKey& a, const LeafKey& b);

inline constexpr std::size_t kLeafKeyBytes = 34;
using LeafKeyBytes = std::array<std::byte, kLeafKeyBytes>;

LeafKeyBytes encode_leaf_key(const LeafKey& key);
// Error: key_malformed (length, a hash that is not that of the object, a leaf out of range).
Result<LeafKey> decode_leaf_key(std::span<const std::byte> bytes);

// Keys k with begin <= k < end in byte order. An empty end is the end of all keys.
struct KeyRange {
  std::string begin;
  std::string end;

  bool contains(std::span<const std::byte> key) const;
  bool operator==(const KeyRange&) const = default;
};

// The placement group `group` of 2^group_bits in a pool; group_bits <= 32, group < 2^group_bits.
// Its two halves after a split are the groups `group` and `group + 2^group_bits` of group_bits + 1.
KeyRange group_key_range(PoolId pool, std::uint32_t group, std::uint32_t group_bits);
KeyRange pool_key_range(PoolId pool);
// All leaves of one object on one branch.
KeyRange object_key_range(const ObjectKey& object);
// The group of an object in a pool of 2^group_bits groups.
std::uint32_t placement_group(const ObjectKey& object, std::uint32_t group_bits);

}  // namespace sarsen

// For tables in memory only; not stable, never stored.
template <>
struct std::hash<sarsen::ObjectKey> {
  std::size_t operator()(const sarsen::ObjectKey& key) const noexcept;
};
template <>
struct std::hash<sarsen::LeafKey> {
  std::size_t operator()(const sarsen::LeafKey& key) const noexcept;
};
