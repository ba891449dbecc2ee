// Extent: where blocks of an object are, and everything that is known of them.
//
// Every field that later features need exists from the first format (rule S7): compression,
// encryption, sharing and erasure coding have a place in it although nothing writes them yet.
//
// Plain values: copied and moved freely. Options are immutable and shared between copies.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <absl/container/inlined_vector.h>

#include "dataplane/base/units.h"
#include "dataplane/store/index/device_run.h"
#include "dataplane/store/index/object_key.h"

namespace sarsen {

// A group of blocks that was compressed together. Overwriting some of its blocks leaves pieces that
// all name the whole unit; its device blocks are free when the last piece is gone. All pieces are
// in one leaf.
struct Compression {
  std::uint8_t codec = 0;          // never 0
  std::uint32_t stored_bytes = 0;  // compressed length of the whole unit; logical: unit_blocks
  std::uint8_t unit_blocks = 0;    // blocks in the unit before any was overwritten
  std::uint8_t unit_offset = 0;    // first block of this extent within the unit
  bool operator==(const Compression&) const = default;
};

inline constexpr std::size_t kNonceBytes = 12;
inline constexpr std::size_t kTagBytes = 16;

struct BlockSeal {
  std::array<std::byte, kNonceBytes> nonce{};
  std::array<std::byte, kTagBytes> tag{};
  bool operator==(const BlockSeal&) const = default;
};

struct Encryption {
  std::uint64_t key_id = 0;
  std::vector<BlockSeal> seals;  // one for each stored block
  bool operator==(const Encryption&) const = default;
};

struct ErasureShard {
  std::uint8_t shard = 0;
  std::uint64_t stripe_version = 0;
  bool operator==(const ErasureShard&) const = default;
};

struct ExtentOptions {
  std::optional<Compression> compression;
  std::optional<Encryption> encryption;
  std::optional<std::uint64_t> reference;  // the record that counts owners; only when shared
  std::optional<ErasureShard> erasure;

  bool empty() const { return !compression && !encryption && !reference && !erasure; }
  bool operator==(const ExtentOptions&) const = default;
};

struct Extent {
  std::uint8_t first_block = 0;  // within the leaf
  std::uint8_t block_count = 0;
  bool shared = false;   // has other owners: never overwritten in place, freed by reference count
  bool corrupt = false;  // the stored data is known to be bad: repair, never serve
  BlockIndex device_block;     // of the first stored block
  LaneSequence lane_sequence;  // of the write that made it; the same write for its other members:
  PgEpoch pg_epoch;
  PgSequence pg_sequence;
  std::uint64_t change_generation = 0;              // for changed-block tracking
  absl::InlinedVector<std::uint32_t, 2> checksums;  // crc32c of each stored block
  std::shared_ptr<const ExtentOptions> options;     // null: none

  const Compression* compression() const {
    return options && options->compression ? &*options->compression : nullptr;
  }
  std::optional<std::uint64_t> reference() const {
    return options ? options->reference : std::nullopt;
  }
  std::uint32_t end_block() const { return std::uint32_t{first_block} + block_count; }
  // Device blocks that hold its data (all of its unit's, when compressed).
  std::uint32_t stored_blocks() const;
  DeviceRun stored_run() const { return {device_block, stored_blocks()}; }
  bool covers(std::uint32_t block) const { return block >= first_block && block < end_block(); }

  // Compares options by value.
  bool operator==(const Extent& other) const;
};

// What an extent must be to enter a leaf. For input from a disk or a peer; anything else that fails
// it is a bug.
bool acceptable(const Extent& extent);
// The blocks [first, first + count) of an extent that covers them.
Extent slice(const Extent& extent, std::uint32_t first, std::uint32_t count);

}  // namespace sarsen
