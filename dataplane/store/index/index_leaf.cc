#include "dataplane/store/index/index_leaf.h"

#include <algorithm>
#include <string>
#include <utility>

#include "dataplane/base/assert.h"
#include "dataplane/store/index/error.h"

namespace sarsen {
namespace {

bool overlap(const DeviceRun& a, const DeviceRun& b) {
  return a.start < b.end() && b.start < a.end();
}

// Adds `run` without the blocks of `kept`: what is before them and what is behind them.
void add_without(FreedRuns& freed, const Extent& piece, const DeviceRun& kept) {
  const auto add = [&](std::uint64_t start, std::uint64_t end) {
    if (start >= end) return;
    const auto blocks = static_cast<std::uint32_t>(end - start);
    const bool extends_last = !freed.empty() && !piece.shared && !freed.back().shared &&
                              freed.back().run.end().value == start;
    if (extends_last) {
      freed.back().run.blocks += blocks;
    } else {
      freed.push_back({{BlockIndex(start), blocks}, piece.shared, piece.reference()});
    }
  };
  const DeviceRun run = piece.stored_run();
  if (!overlap(run, kept)) return add(run.start.value, run.end().value);
  add(run.start.value, kept.start.value);
  add(kept.end().value, run.end().value);
}

// True when `b` goes on where `a` ends and differs in nothing else.
bool continues(const Extent& a, const Extent& b) {
  return a.end_block() == b.first_block && a.stored_run().end() == b.device_block && !a.options &&
         !b.options && !a.shared && !b.shared && a.corrupt == b.corrupt &&
         a.lane_sequence == b.lane_sequence && a.pg_epoch == b.pg_epoch &&
         a.pg_sequence == b.pg_sequence && a.change_generation == b.change_generation;
}

bool same_unit(const Extent& a, const Extent& b) {
  return a.compression() != nullptr && b.compression() != nullptr &&
         a.stored_run() == b.stored_run();
}

// The two exceptions of I-INDEX-2.
bool may_overlap(const Extent& a, const Extent& b) {
  return (a.shared && b.shared) || same_unit(a, b);
}

// Device blocks that the blocks [first, end) of an extent need.
DeviceRun part_run(const Extent& extent, std::uint32_t first, std::uint32_t end) {
  if (extent.compression() != nullptr) return extent.stored_run();
  return {BlockIndex(extent.device_block.value + first - extent.first_block), end - first};
}

void check_range(std::uint32_t first, std::uint32_t count) {
  SARSEN_ASSERT(count > 0 && first < kLeafBlocks && count <= kLeafBlocks - first,
                "a range is within its leaf");
}

// Adds a run, or makes the last one longer when this goes on where it ends.
void add_run(LeafRuns& runs, const LeafRun& next) {
  if (!runs.empty() && runs.back().kind == next.kind && runs.back().corrupt == next.corrupt) {
    LeafRun& last = runs.back();
    const bool goes_on = last.device_block.value + last.block_count == next.device_block.value;
    if (next.kind == LeafRunKind::hole || (next.kind == LeafRunKind::data && goes_on)) {
      last.block_count = static_cast<std::uint8_t>(last.block_count + next.block_count);
      return;
    }
  }
  runs.push_back(next);
}

}  // namespace

Result<IndexLeaf> IndexLeaf::from_extents(std::vector<Extent> extents) {
  IndexLeaf leaf;
  leaf.extents_ = std::move(extents);
  SARSEN_TRY(leaf.validate());
  return leaf;
}

std::uint32_t IndexLeaf::mapped_blocks() const {
  std::uint32_t count = 0;
  for (const Extent& extent : extents_) count += extent.block_count;
  return count;
}

std::optional<BlockLocation> IndexLeaf::lookup(std::uint32_t block) const {
  SARSEN_ASSERT(block < kLeafBlocks, "a block is within its leaf");
  for (const Extent& extent : extents_) {
    if (!extent.covers(block)) continue;
    const std::uint32_t skipped = extent.compression() != nullptr ? 0 : block - extent.first_block;
    return BlockLocation{&extent, BlockIndex(extent.device_block.value + skipped),
                         extent.checksums[skipped]};
  }
  return std::nullopt;
}

LeafRuns IndexLeaf::runs(std::uint32_t first, std::uint32_t count) const {
  check_range(first, count);
  LeafRuns runs;
  std::uint32_t at = first;
  const std::uint32_t end = first + count;
  const auto hole_until = [&](std::uint32_t block) {
    if (at >= block) return;
    add_run(runs, {LeafRunKind::hole, false, static_cast<std::uint8_t>(at),
                   static_cast<std::uint8_t>(block - at), BlockIndex()});
    at = block;
  };
  for (const Extent& extent : extents_) {
    if (extent.end_block() <= at) continue;
    if (extent.first_block >= end) break;
    hole_until(extent.first_block);
    const std::uint32_t until = std::min(extent.end_block(), end);
    const bool compressed = extent.compression() != nullptr;
    const std::uint32_t skipped = compressed ? 0 : at - extent.first_block;
    add_run(runs, {compressed ? LeafRunKind::unit : LeafRunKind::data, extent.corrupt,
                   static_cast<std::uint8_t>(at), static_cast<std::uint8_t>(until - at),
                   BlockIndex(extent.device_block.value + skipped)});
    at = until;
  }
  hole_until(end);
  return runs;
}

bool IndexLeaf::accepts(const Extent& extent) const {
  if (!acceptable(extent)) return false;
  const std::uint32_t first = extent.first_block;
  const std::uint32_t end = extent.end_block();
  for (const Extent& other : extents_) {
    if (!overlap(extent.stored_run(), other.stored_run()) || may_overlap(extent, other)) continue;
    const std::uint32_t head_end = std::min(other.end_block(), first);
    const std::uint32_t tail_first = std::max<std::uint32_t>(other.first_block, end);
    if (other.first_block < head_end &&
        overlap(extent.stored_run(), part_run(other, other.first_block, head_end))) {
      return false;
    }
    if (tail_first < other.end_block() &&
        overlap(extent.stored_run(), part_run(other, tail_first, other.end_block()))) {
      return false;
    }
  }
  return true;
}

FreedRuns IndexLeaf::put(Extent extent) {
  SARSEN_ASSERT(accepts(extent), "I-INDEX-2: an extent is checked before it is put");
  const Pieces removed = carve(extent.first_block, extent.block_count);
  const auto after = std::find_if(extents_.begin(), extents_.end(), [&](const Extent& other) {
    return other.first_block > extent.first_block;
  });
  const auto added = extents_.insert(after, std::move(extent));
  FreedRuns result = freed(removed, &*added);
  merge_neighbours();
  return result;
}

FreedRuns IndexLeaf::remove(std::uint32_t first, std::uint32_t count) {
  check_range(first, count);
  return freed(carve(first, count), nullptr);
}

std::uint32_t IndexLeaf::mark_corrupt(std::uint32_t first, std::uint32_t count) {
  check_range(first, count);
  split_at(first);
  split_at(first + count);
  std::uint32_t marked = 0;
  for (Extent& extent : extents_) {
    if (extent.first_block < first || extent.first_block >= first + count) continue;
    if (!extent.corrupt) marked += extent.block_count;
    extent.corrupt = true;
  }
  merge_neighbours();
  return marked;
}

void IndexLeaf::share(std::optional<std::uint64_t> reference) {
  for (Extent& extent : extents_) {
    if (extent.shared) continue;
    extent.shared = true;
    if (!reference) continue;
    auto options = extent.options ? std::make_shared<ExtentOptions>(*extent.options)
                                  : std::make_shared<ExtentOptions>();
    options->reference = reference;
    extent.options = std::move(options);
  }
}

Result<void> IndexLeaf::validate() const {
  const auto refused = [](std::size_t i, const char* why) {
    return fail(make_error(IndexError::value_malformed,
                           "extent " + std::to_string(i) + " of a leaf " + why));
  };
  for (std::size_t i = 0; i < extents_.size(); ++i) {
    const Extent& extent = extents_[i];
    if (!acceptable(extent)) return refused(i, "is impossible");
    if (i > 0 && extent.first_block < extents_[i - 1].end_block()) {
      return refused(i, "is out of order");
    }
    for (std::size_t j = 0; j < i; ++j) {
      const Extent& other = extents_[j];
      if (overlap(extent.stored_run(), other.stored_run()) && !may_overlap(extent, other)) {
        return refused(i, "names blocks of another");
      }
    }
  }
  return {};
}

std::size_t IndexLeaf::memory_bytes() const {
  constexpr std::size_t kHeapOverheadBytes = 16;
  std::size_t bytes = sizeof(IndexLeaf);
  if (extents_.capacity() > 0) bytes += extents_.capacity() * sizeof(Extent) + kHeapOverheadBytes;
  for (const Extent& extent : extents_) {
    if (extent.checksums.capacity() > 2) {
      bytes += extent.checksums.capacity() * sizeof(std::uint32_t) + kHeapOverheadBytes;
    }
    if (extent.options) bytes += sizeof(ExtentOptions) + 2 * kHeapOverheadBytes;
    if (extent.options && extent.options->encryption) {
      bytes +=
          extent.options->encryption->seals.capacity() * sizeof(BlockSeal) + kHeapOverheadBytes;
    }
  }
  return bytes;
}

// Takes the blocks [first, first + count) out and returns what was there, in order.
IndexLeaf::Pieces IndexLeaf::carve(std::uint32_t first, std::uint32_t count) {
  split_at(first);
  split_at(first + count);
  const auto begin = std::find_if(extents_.begin(), extents_.end(), [&](const Extent& extent) {
    return extent.first_block >= first;
  });
  const auto end = std::find_if(begin, extents_.end(), [&](const Extent& extent) {
    return extent.first_block >= first + count;
  });
  Pieces removed(std::make_move_iterator(begin), std::make_move_iterator(end));
  extents_.erase(begin, end);
  return removed;
}

// What `removed` named and the leaf, which has `added` by now, does not (I-INDEX-3).
FreedRuns IndexLeaf::freed(const Pieces& removed, const Extent* added) const {
  FreedRuns result;
  const DeviceRun kept = added != nullptr ? added->stored_run() : DeviceRun{};
  for (std::size_t i = 0; i < removed.size(); ++i) {
    const Extent& piece = removed[i];
    if (piece.compression() != nullptr) {
      const bool returned_before =
          std::any_of(removed.begin(), removed.begin() + static_cast<std::ptrdiff_t>(i),
                      [&](const Extent& earlier) { return same_unit(earlier, piece); });
      if (returned_before || names_unit(piece)) continue;
    }
    add_without(result, piece, kept);
  }
  return result;
}

bool IndexLeaf::names_unit(const Extent& piece) const {
  return std::any_of(extents_.begin(), extents_.end(),
                     [&](const Extent& extent) { return same_unit(extent, piece); });
}

// Makes `block` the first block of an extent, when one covers it.
void IndexLeaf::split_at(std::uint32_t block) {
  const auto found = std::find_if(extents_.begin(), extents_.end(), [&](const Extent& extent) {
    return extent.first_block < block && extent.covers(block);
  });
  if (found == extents_.end()) return;
  Extent right = slice(*found, block, found->end_block() - block);
  *found = slice(*found, found->first_block, block - found->first_block);
  extents_.insert(found + 1, std::move(right));
}

// One write's blocks that were cut apart and are the same again become one extent again.
void IndexLeaf::merge_neighbours() {
  for (std::size_t i = 0; i + 1 < extents_.size();) {
    Extent& left = extents_[i];
    const Extent& right = extents_[i + 1];
    if (!continues(left, right)) {
      ++i;
      continue;
    }
    left.block_count = static_cast<std::uint8_t>(left.block_count + right.block_count);
    left.checksums.insert(left.checksums.end(), right.checksums.begin(), right.checksums.end());
    extents_.erase(extents_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
}

}  // namespace sarsen
