#include "tests/sim/disk_log.h"

#include <algorithm>

#include "dataplane/base/assert.h"

namespace sarsen::sim {

DiskLogId DiskLog::submitted(DiskOperationKind kind, std::uint64_t offset,
                             std::span<const std::byte> data, std::uint64_t size) {
  DiskLogEntry entry;
  entry.kind = kind;
  entry.offset = offset;
  entry.size = size;
  entry.data.assign(data.begin(), data.end());
  entry.submitted = ++point_;
  entries_.push_back(std::move(entry));
  return entries_.size() - 1;
}

void DiskLog::completed(DiskLogId id) {
  DiskLogEntry& entry = entries_[id];
  entry.completed = ++point_;
  if (entry.kind == DiskOperationKind::write_durable || !volatile_cache_) {
    entry.certain = point_;
  } else if (entry.kind == DiskOperationKind::flush) {
    for (DiskLogEntry& other : entries_) {
      if (other.completed < entry.submitted && other.certain > point_) other.certain = point_;
    }
  }
}

void DiskLog::mark(std::string text) {
  DiskLogEntry entry;
  entry.is_mark = true;
  entry.mark = std::move(text);
  entry.submitted = entry.completed = entry.certain = ++point_;
  entries_.push_back(std::move(entry));
}

// Writes and discards that were submitted by then: completed ones in the order of completion, then
// those in flight.
std::vector<DiskLogId> DiskLog::in_order_of_effect(std::uint64_t point) const {
  std::vector<DiskLogId> ids;
  for (DiskLogId id = 0; id < entries_.size(); ++id) {
    const DiskLogEntry& entry = entries_[id];
    if (entry.submitted > point) break;
    if (!entry.is_mark && entry.size != 0 && entry.kind != DiskOperationKind::read)
      ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end(), [&](DiskLogId a, DiskLogId b) {
    const auto effect = [&](DiskLogId id) {
      return entries_[id].completed <= point ? entries_[id].completed : DiskLogEntry::kNever;
    };
    return effect(a) != effect(b) ? effect(a) < effect(b) : a < b;
  });
  return ids;
}

const std::vector<PendingSector>& DiskLog::pending_sectors(std::uint64_t point) {
  look_at(point);
  return pending_;
}

void DiskLog::look_at(std::uint64_t point) {
  SARSEN_ASSERT(point <= point_, "a point of the log");
  // What happens later never changes what is true at a point.
  if (point == looked_at_) return;
  looked_at_ = point;
  base_ = initial_;
  const std::vector<DiskLogId> ids = in_order_of_effect(point);
  for (const DiskLogId id : ids) {
    const DiskLogEntry& entry = entries_[id];
    if (entry.certain > point) continue;
    if (entry.data.empty()) {
      base_.zero(entry.offset, entry.size);
    } else {
      base_.write(entry.offset, entry.data);
    }
  }
  list_pending(ids, point);
}

void DiskLog::list_pending(const std::vector<DiskLogId>& ids, std::uint64_t point) {
  pending_.clear();
  const auto oldest_open = std::find_if(ids.begin(), ids.end(),
                                        [&](DiskLogId id) { return entries_[id].certain > point; });
  std::fill(covered_.begin(), covered_.end(), false);
  for (auto id = ids.end(); id != oldest_open;) {
    const DiskLogEntry& entry = entries_[*--id];
    const bool settled = entry.certain <= point;
    for (std::uint64_t sector = entry.size / kSectorBytes; sector-- > 0;) {
      const std::uint64_t on_device = entry.offset / kSectorBytes + sector;
      if (settled) {
        covered_[on_device] = true;
      } else if (!covered_[on_device]) {
        pending_.push_back({*id, static_cast<std::uint32_t>(sector)});
      }
    }
  }
  std::reverse(pending_.begin(), pending_.end());
}

SparseImage DiskLog::build_image(const CrashState& state) {
  look_at(state.point);
  SparseImage image = base_;
  const std::vector<PendingSector>& pending = pending_;
  SARSEN_ASSERT(state.fates.size() <= pending.size(), "one fate per pending sector");
  for (std::size_t i = 0; i < state.fates.size(); ++i) {
    const DiskLogEntry& entry = entries_[pending[i].entry];
    const std::uint64_t within = pending[i].sector * kSectorBytes;
    const std::uint64_t offset = entry.offset + within;
    if (state.fates[i] == SectorFate::garbage) {
      std::array<std::byte, kSectorBytes> garbage;
      for (std::size_t b = 0; b < garbage.size(); ++b) {
        garbage[b] = static_cast<std::byte>((b * 131 + offset / kSectorBytes * 29 + 0xa5) & 0xff);
      }
      image.write(offset, garbage);
    } else if (state.fates[i] == SectorFate::new_bytes) {
      if (entry.data.empty()) {
        image.zero(offset, kSectorBytes);
      } else {
        image.write(offset, std::span(entry.data).subspan(within, kSectorBytes));
      }
    }
  }
  return image;
}

}  // namespace sarsen::sim
