#include "dataplane/store/overlay.h"

#include <algorithm>
#include <array>
#include <bit>

#include "dataplane/base/assert.h"

namespace sarsen {
namespace {

static_assert(kLeafBlocks <= 32, "a mask has a bit for each block of a leaf");

// Calls `visit(first, count)` for each run of set bits.
template <typename Visit>
void each_run(std::uint32_t mask, Visit visit) {
  while (mask != 0) {
    const auto first = static_cast<std::uint32_t>(std::countr_zero(mask));
    const auto count = static_cast<std::uint32_t>(std::countr_one(mask >> first));
    visit(first, count);
    mask &= ~(((std::uint32_t{1} << count) - 1) << first);
  }
}

}  // namespace

LeafKey Overlay::key_of(const ObjectKey& object, std::uint32_t block) {
  return {.object = object, .leaf = static_cast<std::uint16_t>(block / kLeafBlocks)};
}

Overlay::Mask Overlay::mask_of(std::uint32_t first, std::uint32_t count) {
  SARSEN_ASSERT(count > 0 && first + count <= kLeafBlocks, "a run is within one leaf");
  return ((Mask{1} << count) - 1) << first;
}

Overlay::Run Overlay::part_of(const Run& run, std::uint32_t first, std::uint32_t count) {
  Run part{.first = static_cast<std::uint8_t>(first),
           .count = static_cast<std::uint8_t>(count),
           .kind = run.kind,
           .sequence = run.sequence,
           .location = BlockIndex(run.location.value + first - run.first),
           .checksums = {}};
  if (!run.checksums.empty()) {
    const auto from = run.checksums.begin() + (first - run.first);
    part.checksums.assign(from, from + count);
  }
  return part;
}

void Overlay::add_parts(const Run& run, Mask mask, Runs& runs) {
  each_run(mask & mask_of(run), [&](std::uint32_t first, std::uint32_t count) {
    runs.push_back(part_of(run, first, count));
  });
}

void Overlay::push_out(const Run& run, Mask mask, OverlayDrop& drop) {
  if (run.kind != PendingKind::extent) return;
  each_run(mask & mask_of(run), [&](std::uint32_t first, std::uint32_t count) {
    drop.superseded.emplace_back(
        run.sequence,
        DeviceRun{.start = BlockIndex(run.location.value + first - run.first), .blocks = count});
  });
}

template <typename Goes>
Overlay::Mask Overlay::take_out(Leaf& leaf, Mask mask, Goes goes, OverlayDrop* drop) {
  Mask taken = 0;
  const std::size_t before = leaf.runs.size();  // parts that stay are added behind
  for (std::size_t i = 0; i < before; ++i) {
    const Mask hit = mask_of(leaf.runs[i]) & mask;
    if (hit == 0 || !goes(leaf.runs[i])) continue;
    if (drop != nullptr) push_out(leaf.runs[i], hit, *drop);
    taken |= hit;
    const Run run = std::move(leaf.runs[i]);
    leaf.runs[i].count = 0;
    add_parts(run, ~hit, leaf.runs);
  }
  leaf.runs.erase(std::remove_if(leaf.runs.begin(), leaf.runs.end(),
                                 [](const Run& run) { return run.count == 0; }),
                  leaf.runs.end());
  block_count_ -= static_cast<std::size_t>(std::popcount(taken));
  return taken;
}

PendingPieces Overlay::look(const ObjectKey& object, std::uint32_t first_block,
                            std::uint32_t block_count) const {
  const std::uint32_t base = first_block / kLeafBlocks * kLeafBlocks;
  const std::uint32_t first = first_block - base;
  const std::uint32_t end = first + block_count;
  SARSEN_ASSERT(block_count > 0 && end <= kLeafBlocks, "a look is at one leaf");
  PendingPieces pieces;
  const auto removed = removal(object);
  const auto leaf = leaves_.find(key_of(object, first_block));
  if (leaf == leaves_.end()) {  // what most reads find
    PendingPiece& piece = pieces.emplace_back();
    piece.first_block = first_block;
    piece.block_count = block_count;
    piece.pending = removed.has_value();
    if (removed) piece.sequence = *removed;
    return pieces;
  }
  std::array<const Run*, kLeafBlocks> run_of{};
  for (const Run& run : leaf->second.runs) {
    for (std::uint32_t i = 0; i < run.count; ++i) run_of[run.first + i] = &run;
  }
  for (std::uint32_t at = first; at < end;) {
    const Run* run = run_of[at];
    std::uint32_t until = at + 1;
    while (until < end && run_of[until] == run) ++until;
    PendingPiece piece;
    piece.first_block = base + at;
    piece.block_count = until - at;
    if (run != nullptr) {
      const std::uint32_t skipped = at - run->first;
      piece.pending = true;
      piece.kind = run->kind;
      piece.sequence = run->sequence;
      piece.location = BlockIndex(run->location.value + skipped);
      if (!run->checksums.empty()) {
        piece.checksums = std::span(run->checksums).subspan(skipped, until - at);
      }
    } else if (removed) {
      piece.pending = true;
      piece.sequence = *removed;
    }
    pieces.push_back(piece);
    at = until;
  }
  return pieces;
}

std::optional<LaneSequence> Overlay::removal(const ObjectKey& object) const {
  if (removals_.empty()) return std::nullopt;
  const auto found = removals_.find(object);
  if (found == removals_.end()) return std::nullopt;
  return found->second;
}

void Overlay::put(const ObjectKey& object, const PendingRun& run, OverlayDrop& drop) {
  const std::uint32_t first = run.first_block % kLeafBlocks;
  const Mask blocks = mask_of(first, run.block_count);
  const auto as_run = [&] {
    Run added{.first = static_cast<std::uint8_t>(first),
              .count = static_cast<std::uint8_t>(run.block_count),
              .kind = run.kind,
              .sequence = run.sequence,
              .location = run.location,
              .checksums = {}};
    added.checksums.assign(run.checksums.begin(), run.checksums.end());
    return added;
  };
  if (const auto removed = removal(object); removed && run.sequence < *removed) {
    push_out(as_run(), blocks, drop);
    drop.reservations += static_cast<std::uint32_t>(std::popcount(run.reserved));
    return;
  }
  Leaf& leaf = leaves_[key_of(object, run.first_block)];
  const Mask reserved = run.reserved << first;
  drop.reservations += static_cast<std::uint32_t>(std::popcount(leaf.reserved & reserved));
  leaf.reserved |= reserved;
  Mask won = blocks;
  if (!leaf.runs.empty()) {
    take_out(leaf, blocks, [&](const Run& old) { return old.sequence < run.sequence; }, &drop);
    for (const Run& newer : leaf.runs) won &= ~mask_of(newer);
  }
  block_count_ += static_cast<std::size_t>(std::popcount(won));
  if (won == blocks) {
    leaf.runs.push_back(as_run());
    return;
  }
  const Run added = as_run();
  add_parts(added, won, leaf.runs);
  push_out(added, blocks & ~won, drop);
}

void Overlay::remove_object(const ObjectKey& object, LaneSequence sequence, OverlayDrop& drop) {
  LaneSequence& removed = removals_[object];
  removed = std::max(removed, sequence);
  for (std::uint16_t number = 0; number < kLeavesPerObject; ++number) {
    const auto found = leaves_.find(LeafKey{.object = object, .leaf = number});
    if (found == leaves_.end()) continue;
    Leaf& leaf = found->second;
    const Mask gone =
        take_out(leaf, ~Mask{0}, [&](const Run& run) { return run.sequence < sequence; }, &drop);
    drop.reservations += static_cast<std::uint32_t>(std::popcount(leaf.reserved & gone));
    leaf.reserved &= ~gone;
    if (leaf.runs.empty()) leaves_.erase(found);
  }
}

std::uint32_t Overlay::take_reservations(const ObjectKey& object, std::uint32_t first_block,
                                         std::uint32_t block_count) {
  const auto leaf = leaves_.find(key_of(object, first_block));
  if (leaf == leaves_.end()) return 0;
  const Mask taken = leaf->second.reserved & mask_of(first_block % kLeafBlocks, block_count);
  leaf->second.reserved &= ~taken;
  return static_cast<std::uint32_t>(std::popcount(taken));
}

std::vector<ObjectKey> Overlay::objects() const {
  std::vector<LeafKey> keys;
  keys.reserve(leaves_.size());
  // order does not matter: they are sorted
  for (const auto& [key, leaf] : leaves_) keys.push_back(key);
  std::sort(keys.begin(), keys.end(),
            [](const LeafKey& a, const LeafKey& b) { return key_order(a, b) < 0; });
  std::vector<ObjectKey> objects;
  for (const LeafKey& key : keys) {
    if (objects.empty() || objects.back() != key.object) objects.push_back(key.object);
  }
  return objects;
}

void Overlay::destaged(const ObjectKey& object, std::uint32_t first_block,
                       std::uint32_t block_count, LaneSequence sequence, OverlayDrop& drop) {
  const auto found = leaves_.find(key_of(object, first_block));
  if (found == leaves_.end()) return;
  Leaf& leaf = found->second;
  // The index names its extents now: they are not given back.
  const Mask gone = take_out(
      leaf, mask_of(first_block % kLeafBlocks, block_count),
      [&](const Run& run) { return run.sequence == sequence; }, nullptr);
  drop.reservations += static_cast<std::uint32_t>(std::popcount(leaf.reserved & gone));
  leaf.reserved &= ~gone;
  if (leaf.runs.empty()) leaves_.erase(found);
}

void Overlay::removal_destaged(const ObjectKey& object, LaneSequence sequence) {
  const auto found = removals_.find(object);
  if (found != removals_.end() && found->second == sequence) removals_.erase(found);
}

}  // namespace sarsen
