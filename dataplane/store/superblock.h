// The superblock: what a device is, in four copies of one block.
//
// Invariants
//   I-SUPER-1  A superblock is believed when two copies agree on its sequence and are valid; of
//              several such sequences the highest counts.
//   I-SUPER-2  An update writes copies 0 and 1, flushes, then writes 2 and 3, flushes: at every
//              moment two equal copies of the old or of the new superblock are durable.
//   I-SUPER-3  start_count rises, durably, before anything else is written after an open. Numbers
//              that must never repeat (lane sequences, segment generations) carry it in their high
//              bits (run_base()), so that no recovery mistake can issue one twice.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "dataplane/base/result.h"
#include "dataplane/runtime/env.h"
#include "dataplane/store/geometry.h"

namespace sarsen {

using Uuid = std::array<std::byte, 16>;

// "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
std::string to_string(const Uuid& uuid);
// A version 4 (random) UUID.
Uuid make_uuid(Random& random);

inline constexpr std::uint32_t kFormatVersion = 1;

struct Superblock {
  Uuid device{};
  Uuid cluster{};  // zero until the device joins a cluster
  std::uint32_t osd_id = 0;
  std::uint64_t sequence = 0;               // rises with each update of the superblock
  std::uint64_t start_count = 0;            // how often the store was opened for writing
  std::uint64_t features_incompatible = 0;  // an unknown bit: do not open
  std::uint64_t features_read_only = 0;     // an unknown bit: open only for reading
  std::uint64_t features_compatible = 0;    // an unknown bit: no matter
  std::int64_t formatted_wall_time_ns = 0;
  // Seeds the checksums of journal headers, so that data of a guest cannot pass for one.
  std::uint64_t journal_salt = 0;
  StoreGeometry geometry;

  bool operator==(const Superblock&) const = default;

  // The high bits of numbers issued in this run; 40 bits are left for a counter.
  std::uint64_t run_base() const { return start_count << 40; }
};

// Encodes one copy. `block` is kBlockBytes long.
void encode_superblock(const Superblock& superblock, std::uint32_t copy,
                       std::span<std::byte> block);
// Error: not_a_store (no magic), corrupt_block (bad checksum, or another copy's place),
// format_unsupported, geometry_invalid.
Result<Superblock> decode_superblock(std::uint32_t copy, std::span<const std::byte> block);

struct SuperblockReading {
  Superblock superblock;
  std::uint32_t copies_good = 0;                  // equal to `superblock`
  std::uint32_t copies_bad = 0;                   // unreadable or invalid
  std::uint32_t copies_older = 0;                 // or newer without quorum
  std::array<bool, kSuperblockCopies> current{};  // equal to `superblock`
  bool second_pair_is_older = false;  // copies 2 and 3 are equal, valid, and of an earlier sequence
};

// Reads all copies and applies I-SUPER-1. Error: not_a_store, superblock_quorum,
// format_unsupported, and the disk's other than io_error (device_gone).
Task<Result<SuperblockReading>> read_superblock(Env& env, Disk& disk);
// Writes again what was read, so that both pairs of copies are on stable media whatever flush
// failed before: a copy that reads well may be in the device's cache only. One pair at a time, the
// one that an interrupted update left unproven first.
Task<Result<void>> prove_superblock(Env& env, Disk& disk, SuperblockReading reading);
// I-SUPER-2. The caller has raised superblock.sequence.
Task<Result<void>> write_superblock(Env& env, Disk& disk, Superblock superblock);

}  // namespace sarsen
