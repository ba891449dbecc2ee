#include "dataplane/store/overlay.h"

#include <algorithm>
#include <utility>

namespace sarsen {
namespace {

void push_out(const PendingBlock& old, OverlayDrop& drop) {
  if (old.kind == PendingKind::extent) drop.superseded.emplace_back(old.sequence, old.location);
}

}  // namespace

LeafKey Overlay::key_of(const ObjectKey& object, std::uint32_t block) {
  return {.object = object, .leaf = static_cast<std::uint16_t>(block / kLeafBlocks)};
}

std::optional<PendingBlock> Overlay::find(const ObjectKey& object, std::uint32_t block) const {
  if (const auto leaf = leaves_.find(key_of(object, block)); leaf != leaves_.end()) {
    const auto index = static_cast<std::uint8_t>(block % kLeafBlocks);
    for (const Entry& entry : leaf->second) {
      if (entry.index == index) return entry.pending;
    }
  }
  if (const auto sequence = removal(object)) {
    return PendingBlock{.sequence = *sequence, .location = {}, .kind = PendingKind::zero};
  }
  return std::nullopt;
}

std::optional<LaneSequence> Overlay::removal(const ObjectKey& object) const {
  if (removals_.empty()) return std::nullopt;
  const auto found = removals_.find(object);
  if (found == removals_.end()) return std::nullopt;
  return found->second;
}

void Overlay::put(const ObjectKey& object, std::uint32_t block, PendingBlock pending,
                  OverlayDrop& drop) {
  if (const auto removed = removal(object); removed && pending.sequence < *removed) {
    push_out(pending, drop);
    if (pending.reserved) ++drop.reservations;
    return;
  }
  Leaf& leaf = leaves_[key_of(object, block)];
  const auto index = static_cast<std::uint8_t>(block % kLeafBlocks);
  const auto entry =
      std::find_if(leaf.begin(), leaf.end(), [&](const Entry& e) { return e.index == index; });
  if (entry == leaf.end()) {
    leaf.push_back({.index = index, .pending = pending});
    ++block_count_;
    return;
  }
  PendingBlock& old = entry->pending;
  const bool both_reserved = old.reserved && pending.reserved;
  const bool any_reserved = old.reserved || pending.reserved;
  if (both_reserved) ++drop.reservations;
  if (pending.sequence > old.sequence) {
    push_out(old, drop);
    old = pending;
  } else {
    push_out(pending, drop);
  }
  old.reserved = any_reserved;
}

void Overlay::remove_object(const ObjectKey& object, LaneSequence sequence, OverlayDrop& drop) {
  LaneSequence& removed = removals_[object];
  removed = std::max(removed, sequence);
  for (std::uint16_t number = 0; number < kLeavesPerObject; ++number) {
    const auto leaf = leaves_.find(LeafKey{.object = object, .leaf = number});
    if (leaf == leaves_.end()) continue;
    const auto is_older = [&](const Entry& entry) { return entry.pending.sequence < sequence; };
    for (const Entry& entry : leaf->second) {
      if (!is_older(entry)) continue;
      push_out(entry.pending, drop);
      if (entry.pending.reserved) ++drop.reservations;
      --block_count_;
    }
    leaf->second.erase(std::remove_if(leaf->second.begin(), leaf->second.end(), is_older),
                       leaf->second.end());
    if (leaf->second.empty()) leaves_.erase(leaf);
  }
}

PendingBlock* Overlay::entry_of(const ObjectKey& object, std::uint32_t block) {
  const auto leaf = leaves_.find(key_of(object, block));
  if (leaf == leaves_.end()) return nullptr;
  for (Entry& entry : leaf->second) {
    if (entry.index == block % kLeafBlocks) return &entry.pending;
  }
  return nullptr;
}

bool Overlay::take_reservation(const ObjectKey& object, std::uint32_t block) {
  PendingBlock* pending = entry_of(object, block);
  return pending != nullptr && std::exchange(pending->reserved, false);
}

void Overlay::destaged(const ObjectKey& object, std::uint32_t block, LaneSequence sequence,
                       OverlayDrop& drop) {
  const PendingBlock* pending = entry_of(object, block);
  if (pending == nullptr || pending->sequence != sequence) return;
  if (pending->reserved) ++drop.reservations;
  const auto leaf = leaves_.find(key_of(object, block));
  const auto is_block = [&](const Entry& entry) { return entry.index == block % kLeafBlocks; };
  leaf->second.erase(std::find_if(leaf->second.begin(), leaf->second.end(), is_block));
  --block_count_;
  if (leaf->second.empty()) leaves_.erase(leaf);
}

void Overlay::removal_destaged(const ObjectKey& object, LaneSequence sequence) {
  const auto found = removals_.find(object);
  if (found != removals_.end() && found->second == sequence) removals_.erase(found);
}

}  // namespace sarsen
