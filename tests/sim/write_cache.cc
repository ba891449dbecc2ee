#include "tests/sim/write_cache.h"

#include <algorithm>

#include "tests/sim/disk_log.h"

namespace sarsen::sim {

WriteCache::WriteCache(std::uint64_t device_bytes)
    : region_entries_((device_bytes + kRegionBytes - 1) / kRegionBytes) {}

void WriteCache::add(std::uint64_t offset, std::span<const std::byte> data) {
  UnflushedWrite& entry = writes_.emplace_back();
  entry.number = next_number_++;
  entry.offset = offset;
  entry.data.assign(data.begin(), data.end());
  entry.live_count = data.size() / kSectorBytes;
  entry.live.assign(entry.live_count, 1);
  bytes_ += data.size();
  count(entry, 1);
}

void WriteCache::count(const UnflushedWrite& entry, int change) {
  const std::uint64_t last = (entry.offset + entry.data.size() - 1) / kRegionBytes;
  for (std::uint64_t region = entry.offset / kRegionBytes; region <= last; ++region) {
    region_entries_[region] += static_cast<std::uint32_t>(change);
  }
}

bool WriteCache::touches(std::uint64_t offset, std::uint64_t size) const {
  const std::uint64_t last = (offset + size - 1) / kRegionBytes;
  for (std::uint64_t region = offset / kRegionBytes; region <= last; ++region) {
    if (region_entries_[region] != 0) return true;
  }
  return false;
}

void WriteCache::settle(std::uint64_t offset, std::uint64_t size, std::uint64_t number) {
  if (!touches(offset, size)) return;
  for (auto entry = writes_.begin(); entry != writes_.end() && entry->number < number;) {
    const std::uint64_t first = std::max(offset, entry->offset);
    const std::uint64_t end = std::min(offset + size, entry->offset + entry->data.size());
    for (std::uint64_t at = first; at < end; at += kSectorBytes) {
      std::uint8_t& live = entry->live[(at - entry->offset) / kSectorBytes];
      entry->live_count -= live;
      live = 0;
    }
    entry = entry->live_count == 0 ? remove(entry) : std::next(entry);
  }
}

std::list<UnflushedWrite>::iterator WriteCache::remove(std::list<UnflushedWrite>::iterator entry) {
  bytes_ -= entry->data.size();
  count(*entry, -1);
  return writes_.erase(entry);
}

void WriteCache::clear() {
  writes_.clear();
  bytes_ = 0;
  std::fill(region_entries_.begin(), region_entries_.end(), 0);
}

void WriteCache::for_each_live_run(
    const UnflushedWrite& entry,
    const std::function<void(std::uint64_t, std::span<const std::byte>)>& action) {
  const std::size_t sectors = entry.live.size();
  for (std::size_t first = 0; first < sectors;) {
    if (entry.live[first] == 0) {
      ++first;
      continue;
    }
    std::size_t end = first + 1;
    while (end < sectors && entry.live[end] != 0) ++end;
    action(entry.offset + first * kSectorBytes,
           std::span(entry.data).subspan(first * kSectorBytes, (end - first) * kSectorBytes));
    first = end;
  }
}

}  // namespace sarsen::sim
