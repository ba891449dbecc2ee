// Strong types for numbers that could be swapped by mistake. All are 64 bits wide unless said.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace sarsen {

// A number with a meaning. No arithmetic between different tags; `value` is the way out.
template <typename Tag, typename Representation = std::uint64_t>
struct Strong {
  Representation value = 0;

  constexpr Strong() = default;
  constexpr explicit Strong(Representation v) : value(v) {}
  constexpr auto operator<=>(const Strong&) const = default;
  constexpr Strong next() const { return Strong(static_cast<Representation>(value + 1)); }
};

using ByteOffset = Strong<struct ByteOffsetTag>;  // from the start of a device
using BlockIndex = Strong<struct BlockIndexTag>;  // in units of kBlockBytes
using MapEpoch = Strong<struct MapEpochTag>;      // version of the cluster map
using PgEpoch = Strong<struct PgEpochTag>;        // configuration of one placement group
using PgSequence = Strong<struct PgSequenceTag>;  // order of writes within a PgEpoch
using LaneSequence =
    Strong<struct LaneSequenceTag>;  // order of records within a lane, never reused
using ImageId = Strong<struct ImageIdTag>;
using ShardId = Strong<struct ShardIdTag, std::uint32_t>;
using LaneId = Strong<struct LaneIdTag, std::uint32_t>;
using PoolId = Strong<struct PoolIdTag, std::uint32_t>;

// The unit of checksum, of linearizability and of device alignment, in bytes.
inline constexpr std::uint32_t kBlockBytes = 4096;
// The part of an image that lives in one placement group, in bytes (RBD's default object size).
inline constexpr std::uint32_t kObjectBytes = 4u << 20;
inline constexpr std::uint32_t kBlocksPerObject = kObjectBytes / kBlockBytes;

inline constexpr std::uint64_t kKiB = 1024;
inline constexpr std::uint64_t kMiB = 1024 * kKiB;
inline constexpr std::uint64_t kGiB = 1024 * kMiB;
inline constexpr std::uint64_t kTiB = 1024 * kGiB;

// `alignment` is a power of two.
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}
constexpr std::uint64_t round_down(std::uint64_t value, std::uint64_t alignment) {
  return value & ~(alignment - 1);
}

}  // namespace sarsen

template <typename Tag, typename Representation>
struct std::hash<sarsen::Strong<Tag, Representation>> {
  std::size_t operator()(const sarsen::Strong<Tag, Representation>& strong) const noexcept {
    return std::hash<Representation>{}(strong.value);
  }
};
