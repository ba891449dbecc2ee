// IndexLeaf: the extents of 16 blocks (64 KiB) of one object. What no extent covers is a hole: it
// reads as zeros and takes no space.
//
// Shard      Belongs to the lane of its object; no locking.
// Owns       Its extents. It does not own device blocks: what a change stops naming is returned,
// and
//            the caller quarantines it (ExtentAllocator) or drops a reference (when shared).
// Bounded by kLeafBlocks extents.
// Errors     IndexError::value_malformed from validate() and from_extents().
//
// Invariants
//   I-INDEX-1  Extents are sorted by first block and do not overlap.
//   I-INDEX-2  No device block is named twice by one leaf, except by pieces of one compressed unit
//              and by extents that are shared.
//   I-INDEX-3  A change returns every device block that the leaf named before and not after, once;
//              never one that it still names. (Of a shared block each naming is one reference.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <absl/container/inlined_vector.h>

#include "dataplane/base/result.h"
#include "dataplane/store/index/extent.h"

namespace sarsen {

// Device blocks that a leaf no longer names.
struct FreedRun {
  DeviceRun run;
  bool shared = false;                     // drop a reference instead of freeing
  std::optional<std::uint64_t> reference;  // of the shared extent
  bool operator==(const FreedRun&) const = default;
};
using FreedRuns = absl::InlinedVector<FreedRun, 2>;

enum class LeafRunKind : std::uint8_t {
  hole,  // zeros; device_block means nothing
  data,  // stored block by block from device_block on
  unit,  // part of a compressed unit that starts at device_block; ask lookup()
};

struct LeafRun {
  LeafRunKind kind = LeafRunKind::hole;
  bool corrupt = false;  // known to be bad: not to be served
  std::uint8_t first_block = 0;
  std::uint8_t block_count = 0;
  BlockIndex device_block;
  bool operator==(const LeafRun&) const = default;
};
using LeafRuns = absl::InlinedVector<LeafRun, 4>;

struct BlockLocation {
  const Extent* extent = nullptr;  // valid until the leaf changes
  BlockIndex device_block;         // of this block; the unit's first when compressed
  std::uint32_t checksum = 0;      // crc32c of that device block
};

class IndexLeaf {
 public:
  IndexLeaf() = default;
  // From extents in order, as a decoder finds them; keeps them as they are.
  static Result<IndexLeaf> from_extents(std::vector<Extent> extents);

  bool empty() const { return extents_.empty(); }
  std::span<const Extent> extents() const { return extents_; }
  std::uint32_t mapped_blocks() const;

  // Nothing: a hole.
  std::optional<BlockLocation> lookup(std::uint32_t block) const;
  // The blocks [first, first + count), count > 0, in order and without gaps; neighbours on the
  // device are one run, whichever writes made them.
  LeafRuns runs(std::uint32_t first, std::uint32_t count) const;

  // Whether put() may be called: the extent is acceptable() and names no device block of an extent
  // outside of the blocks that it replaces (I-INDEX-2). For input from a disk or a peer.
  bool accepts(const Extent& extent) const;
  // `extent` replaces what it overlaps. It may name device blocks that what it replaces named (an
  // overwrite in place); those are not returned. The leaf must accept it.
  FreedRuns put(Extent extent);
  // The blocks [first, first + count) become a hole.
  FreedRuns remove(std::uint32_t first, std::uint32_t count);
  // Marks what is mapped of [first, first + count); returns how many blocks were not marked before.
  std::uint32_t mark_corrupt(std::uint32_t first, std::uint32_t count);
  // Every extent becomes shared, so that a copy of this leaf may name the same blocks. Extents that
  // are shared already keep their reference.
  void share(std::optional<std::uint64_t> reference);

  Result<void> validate() const;
  // Bytes of memory, the leaf itself and an estimate of the heap's overhead included.
  std::size_t memory_bytes() const;

  bool operator==(const IndexLeaf&) const = default;

 private:
  using Pieces = absl::InlinedVector<Extent, 2>;

  Pieces carve(std::uint32_t first, std::uint32_t count);
  FreedRuns freed(const Pieces& removed, const Extent* added) const;
  bool names_unit(const Extent& piece) const;
  void split_at(std::uint32_t block);
  void merge_neighbours();

  std::vector<Extent> extents_;
};

}  // namespace sarsen
