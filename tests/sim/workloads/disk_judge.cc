#include "tests/sim/workloads/disk_judge.h"

#include <algorithm>
#include <cstring>

#include "dataplane/base/assert.h"
#include "tests/model/payload.h"

namespace sarsen::sim {
namespace {

constexpr std::size_t kSector = 512;

bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace

std::uint64_t DiskJudge::begin_write(std::uint64_t first, std::vector<std::byte> bytes) {
  open_[next_id_] = {first, std::move(bytes), false};
  return next_id_++;
}

void DiskJudge::end_write(std::uint64_t id, bool durable) {
  const Open write = std::move(open_.at(id));
  open_.erase(id);
  if (write.power_lost_since && !durable) return;  // it is among the pending ones already
  const std::uint64_t number = next_number_++;
  for (std::uint64_t i = 0; i < write.bytes.size() / kBlockBytes; ++i) {
    Block& block = blocks_[write.first + i];
    const auto at = write.bytes.begin() + static_cast<std::ptrdiff_t>(i * kBlockBytes);
    block.latest.assign(at, at + kBlockBytes);
    if (durable) {
      block.settled = block.latest;
      block.pending.clear();
      block.certainty = Certainty::known;
    } else {
      block.pending.push_back({number, false, block.latest});
      // Reads are known again; what power loss leaves of a spoilt block is not.
      if (block.certainty != Certainty::anything) block.certainty = Certainty::known;
    }
  }
}

void DiskJudge::failed_write(std::uint64_t id) {
  const Open write = std::move(open_.at(id));
  open_.erase(id);
  const std::uint64_t number = next_number_++;
  for (std::uint64_t i = 0; i < write.bytes.size() / kBlockBytes; ++i) {
    Block& block = blocks_[write.first + i];
    const auto at = write.bytes.begin() + static_cast<std::ptrdiff_t>(i * kBlockBytes);
    block.pending.push_back({number, true, Bytes(at, at + kBlockBytes)});
    if (block.certainty < Certainty::mixed) block.certainty = Certainty::mixed;
  }
}

void DiskJudge::end_flush(std::uint64_t began) {
  for (Block& block : blocks_) {
    // The last covered write that no failed flush forgot is what is stable now, and what came
    // before it can never land over it.
    for (std::size_t i = block.pending.size(); i-- > 0;) {
      const Pending& write = block.pending[i];
      if (write.number >= began || write.uncertain) continue;
      block.settled = write.bytes;
      block.pending.erase(block.pending.begin(),
                          block.pending.begin() + static_cast<std::ptrdiff_t>(i + 1));
      break;
    }
  }
}

void DiskJudge::failed_flush(std::uint64_t began) {
  for (Block& block : blocks_) {
    for (Pending& write : block.pending) write.uncertain |= write.number < began;
  }
}

void DiskJudge::add_open_writes_as_pending() {
  for (const auto& [id, write] : open_) {
    const std::uint64_t number = next_number_++;
    for (std::uint64_t i = 0; i < write.bytes.size() / kBlockBytes; ++i) {
      Block& block = blocks_[write.first + i];
      const auto at = write.bytes.begin() + static_cast<std::ptrdiff_t>(i * kBlockBytes);
      block.pending.push_back({number, true, Bytes(at, at + kBlockBytes)});
      block.certainty =
          std::max(block.certainty, writes_fail_ ? Certainty::mixed : Certainty::some_write);
    }
  }
}

void DiskJudge::process_died() {
  add_open_writes_as_pending();
  open_.clear();
}

void DiskJudge::power_lost() {
  // Those that are open stay so: the device may be lost while its process lives.
  add_open_writes_as_pending();
  for (auto& [id, write] : open_) write.power_lost_since = true;
  for (Block& block : blocks_) {
    const bool open = block.certainty != Certainty::known || !block.pending.empty();
    if (open && block.certainty != Certainty::anything) {
      block.certainty = Certainty::mixed_and_final;
    }
  }
}

void DiskJudge::spoilt(std::uint64_t block) {
  blocks_[block].certainty = Certainty::anything;
}

bool DiskJudge::sector_is_legal(const Block& block, std::span<const std::byte> sector,
                                std::size_t within) const {
  if (garbage_ && block.certainty == Certainty::mixed_and_final && !block.pending.empty()) {
    return true;
  }
  const auto part = [within](const Bytes& bytes) {
    return std::span(bytes).subspan(within, kSector);
  };
  if (same(sector, part(block.settled)) || same(sector, part(block.latest))) return true;
  return std::any_of(block.pending.begin(), block.pending.end(),
                     [&](const Pending& write) { return same(sector, part(write.bytes)); });
}

bool DiskJudge::block_is_legal(const Block& block, std::span<const std::byte> bytes) const {
  if (block.certainty == Certainty::anything) return true;
  if (same(bytes, block.latest))
    return block.certainty != Certainty::mixed_and_final || !block.pending.empty() ||
           same(bytes, block.settled);
  if (block.certainty == Certainty::known) return false;
  if (block.certainty == Certainty::some_write) {
    return std::any_of(block.pending.begin(), block.pending.end(),
                       [&](const Pending& write) { return same(bytes, write.bytes); });
  }
  for (std::size_t within = 0; within < kBlockBytes; within += kSector) {
    if (!sector_is_legal(block, bytes.subspan(within, kSector), within)) return false;
  }
  return true;
}

std::optional<std::string> DiskJudge::end_read(std::uint64_t first,
                                               std::span<const std::byte> bytes) {
  for (std::uint64_t i = 0; i < bytes.size() / kBlockBytes; ++i) {
    Block& block = blocks_[first + i];
    const auto read = bytes.subspan(i * kBlockBytes, kBlockBytes);
    if (!block_is_legal(block, read)) {
      return "block " + std::to_string(first + i) + " reads as " +
             model::describe_block(read.first<kBlockBytes>()) + ", must be " +
             model::describe_block(std::span(block.latest).first<kBlockBytes>()) + " (certainty " +
             std::to_string(static_cast<int>(block.certainty)) + ", " +
             std::to_string(block.pending.size()) + " pending)";
    }
    if (block.certainty == Certainty::known || block.certainty == Certainty::anything) continue;
    block.latest.assign(read.begin(), read.end());
    if (block.certainty == Certainty::mixed_and_final) {
      block.settled = block.latest;
      block.pending.clear();
    } else {
      // What it shows is in the cache, or on the media: power loss may still take it back.
      block.pending.push_back({next_number_++, true, block.latest});
    }
    block.certainty = Certainty::known;
  }
  return std::nullopt;
}

}  // namespace sarsen::sim
