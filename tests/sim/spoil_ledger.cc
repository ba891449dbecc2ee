#include "tests/sim/spoil_ledger.h"

namespace sarsen::sim {

void SpoilLedger::record(const Spoil& spoil) {
  if (!spoil.transient) {
    const std::uint64_t end = (spoil.offset.value + spoil.size + kBlockBytes - 1) / kBlockBytes;
    for (std::uint64_t block = spoil.offset.value / kBlockBytes; block < end; ++block) {
      blocks_[block] = history_.size();
    }
  }
  history_.push_back(spoil);
}

void SpoilLedger::heal(ByteOffset offset, std::uint64_t size) {
  if (blocks_.empty()) return;
  const std::uint64_t first = (offset.value + kBlockBytes - 1) / kBlockBytes;
  const std::uint64_t end = (offset.value + size) / kBlockBytes;
  if (first < end) blocks_.erase(blocks_.lower_bound(first), blocks_.lower_bound(end));
}

bool SpoilLedger::spoilt(ByteOffset offset, std::uint64_t size) const {
  const auto found = blocks_.lower_bound(offset.value / kBlockBytes);
  return found != blocks_.end() && found->first * kBlockBytes < offset.value + size;
}

}  // namespace sarsen::sim
