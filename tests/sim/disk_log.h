// DiskLog: everything that was submitted to a simulated disk and when it completed, so that a crash
// explorer can build every image that power loss could have left.
//
// A point is a position in the log: the state of the world after that many submissions, completions
// and marks. At each point every write is either certain to be on stable media, or pending: each of
// its 512-byte sectors may hold the new bytes, the old ones, or garbage.
//
// Usage      DiskLog log(disk.stable()); disk.set_log(&log); run the workload;
//            for each point p: pending = log.pending_sectors(p); for each choice of fates:
//            image = log.build_image({p, fates}).
// Threads    None of its own; called under the disk's lock.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dataplane/runtime/env.h"
#include "tests/sim/sparse_image.h"

namespace sarsen::sim {

inline constexpr std::uint64_t kSectorBytes = 512;

// Index of an entry.
using DiskLogId = std::uint64_t;

struct DiskLogEntry {
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  DiskOperationKind kind = DiskOperationKind::write;
  bool is_mark = false;
  std::string mark;  // what the workload said, "write 3 acknowledged"
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::vector<std::byte> data;
  std::uint64_t submitted = 0;       // the point after its submission
  std::uint64_t completed = kNever;  // the point after its completion without an error
  std::uint64_t certain = kNever;    // the point from which it is certain to be on stable media
};

struct PendingSector {
  DiskLogId entry = 0;
  std::uint32_t sector = 0;  // within the entry
};

enum class SectorFate : std::uint8_t { old_bytes, new_bytes, garbage };

struct CrashState {
  std::uint64_t point = 0;
  // One per pending sector of that point, in their order; missing ones are old_bytes.
  std::vector<SectorFate> fates;
};

class DiskLog {
 public:
  // `initial` is the stable image when recording began. `volatile_cache` as in DiskInfo.
  DiskLog(SparseImage initial, bool volatile_cache)
      : volatile_cache_(volatile_cache),
        initial_(std::move(initial)),
        base_(initial_),
        covered_(initial_.size_bytes() / kSectorBytes) {}

  DiskLogId submitted(DiskOperationKind kind, std::uint64_t offset, std::span<const std::byte> data,
                      std::uint64_t size);
  void completed(DiskLogId id);
  void mark(std::string text);

  std::uint64_t points() const { return point_; }
  const std::vector<DiskLogEntry>& entries() const { return entries_; }

  // Sectors whose fate is open at `point`, oldest write first. A sector that a later certain write
  // covers is not among them. Discards are: "new bytes" then means zeros.
  const std::vector<PendingSector>& pending_sectors(std::uint64_t point);
  // The bytes after power loss at state.point. Quick for many states of one point.
  SparseImage build_image(const CrashState& state);

 private:
  std::vector<DiskLogId> in_order_of_effect(std::uint64_t point) const;

  bool volatile_cache_;
  SparseImage initial_;
  std::vector<DiskLogEntry> entries_;
  std::uint64_t point_ = 0;
  // What belongs to the point that was asked for last: its certain bytes and its pending sectors.
  void look_at(std::uint64_t point);
  void list_pending(const std::vector<DiskLogId>& ids, std::uint64_t point);
  std::uint64_t looked_at_ = 0;
  SparseImage base_;
  std::vector<PendingSector> pending_;
  std::vector<bool> covered_;  // device sectors, while listing
};

}  // namespace sarsen::sim
