// Extents and leaves for tests: simple ones by hand, arbitrary ones from a seed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "dataplane/base/rng.h"
#include "dataplane/store/index/index_leaf.h"

namespace sarsen {

// One write's blocks; checksums 0x1000 + number of the device block.
inline Extent plain_extent(std::uint32_t first, std::uint32_t count, std::uint64_t device_block,
                           std::uint64_t sequence = 1) {
  Extent extent;
  extent.first_block = static_cast<std::uint8_t>(first);
  extent.block_count = static_cast<std::uint8_t>(count);
  extent.device_block = BlockIndex(device_block);
  extent.lane_sequence = LaneSequence(sequence);
  extent.pg_epoch = PgEpoch(3);
  extent.pg_sequence = PgSequence(sequence + 100);
  for (std::uint32_t i = 0; i < count; ++i) {
    extent.checksums.push_back(static_cast<std::uint32_t>(0x1000 + device_block + i));
  }
  return extent;
}

// A whole unit of `count` blocks that is stored in `stored_bytes`.
inline Extent compressed_extent(std::uint32_t first, std::uint32_t count,
                                std::uint64_t device_block, std::uint32_t stored_bytes) {
  Extent extent = plain_extent(first, count, device_block);
  auto options = std::make_shared<ExtentOptions>();
  options->compression = Compression{.codec = 1,
                                     .stored_bytes = stored_bytes,
                                     .unit_blocks = static_cast<std::uint8_t>(count),
                                     .unit_offset = 0};
  extent.options = std::move(options);
  extent.checksums.assign(extent.stored_blocks(), 7);
  return extent;
}

// A number of a random number of bits, so that small, large and equal ones are all common.
inline std::uint64_t any_number(Rng& rng) {
  const std::uint64_t bits = rng.below(65);
  return bits == 0 ? 0 : rng.next() >> (64 - bits);
}

// Any extent for the blocks [first, first + count) at `device_block`, with any options.
inline Extent any_extent(Rng& rng, std::uint32_t first, std::uint32_t count,
                         std::uint64_t device_block, double option_chance = 0.3) {
  Extent extent = plain_extent(first, count, device_block);
  extent.shared = rng.chance(option_chance);
  extent.corrupt = rng.chance(0.1);
  extent.lane_sequence = LaneSequence(any_number(rng));
  extent.pg_epoch = PgEpoch(rng.chance(0.5) ? 3 : any_number(rng));
  extent.pg_sequence = PgSequence(any_number(rng));
  extent.change_generation = rng.chance(0.5) ? 0 : any_number(rng);
  auto options = std::make_shared<ExtentOptions>();
  if (rng.chance(option_chance)) {
    options->compression = Compression{.codec = static_cast<std::uint8_t>(rng.between(1, 255)),
                                       .stored_bytes = static_cast<std::uint32_t>(
                                           rng.between(1, std::uint64_t{count} * kBlockBytes)),
                                       .unit_blocks = static_cast<std::uint8_t>(count),
                                       .unit_offset = 0};
  }
  if (rng.chance(option_chance)) options->encryption = Encryption{any_number(rng), {}};
  if (extent.shared && rng.chance(0.5)) options->reference = any_number(rng);
  if (rng.chance(option_chance)) {
    options->erasure = ErasureShard{static_cast<std::uint8_t>(rng.below(256)), any_number(rng)};
  }
  if (!options->empty()) extent.options = options;
  const std::uint32_t stored = extent.stored_blocks();
  extent.checksums.clear();
  for (std::uint32_t i = 0; i < stored; ++i) {
    extent.checksums.push_back(static_cast<std::uint32_t>(rng.next()));
  }
  if (options->encryption) {
    for (std::uint32_t i = 0; i < stored; ++i) {
      BlockSeal seal;
      for (auto& byte : seal.nonce) byte = static_cast<std::byte>(rng.below(256));
      for (auto& byte : seal.tag) byte = static_cast<std::byte>(rng.below(256));
      options->encryption->seals.push_back(seal);
    }
  }
  return extent;
}

// A leaf after some random puts and removes.
inline IndexLeaf any_leaf(Rng& rng, double option_chance = 0.3) {
  IndexLeaf leaf;
  std::uint64_t device_block = rng.below(1 << 20);
  const std::uint64_t changes = rng.below(24);
  for (std::uint64_t i = 0; i < changes; ++i) {
    const auto first = static_cast<std::uint32_t>(rng.below(kLeafBlocks));
    const auto count =
        static_cast<std::uint32_t>(rng.chance(0.5) ? 1 : rng.between(1, kLeafBlocks - first));
    if (rng.chance(0.1)) {
      leaf.remove(first, count);
      continue;
    }
    leaf.put(any_extent(rng, first, count, device_block, option_chance));
    device_block += count + rng.below(2) * rng.below(1 << 20);
  }
  return leaf;
}

}  // namespace sarsen
