// Reads one journal segment and finds every live group in it, wherever bad blocks are.
#pragma once

#include <cstdint>
#include <vector>

#include "dataplane/runtime/env.h"
#include "dataplane/store/journal_format.h"
#include "dataplane/store/superblock.h"

namespace sarsen {

// A segment seen through a window that moves forward; a block that cannot be read is bad, alone.
class SegmentScanner {
 public:
  SegmentScanner(Env& env, Disk& disk, const Superblock& superblock, std::uint32_t segment);

  // Groups of the highest generation at or above `live_from`, in order; empty when there is none.
  // Error: out_of_memory, device_gone.
  Task<Result<std::vector<JournalGroup>>> scan(SegmentGeneration live_from);
  // True when every payload block of the group's `write` records has its checksum.
  Task<Result<bool>> payload_is_whole(JournalGroup group);

  std::uint64_t blocks_unreadable() const { return blocks_unreadable_; }

 private:
  // Makes [position, position + blocks) readable in the window; gives its bytes, empty when any of
  // its blocks is bad.
  Task<Result<std::span<const std::byte>>> load(std::uint32_t position, std::uint32_t blocks);
  Task<Result<void>> fill(std::uint32_t position, std::uint32_t blocks);
  Task<Result<std::vector<JournalGroup>>> group_at(std::uint32_t position);

  Env& env_;
  Disk& disk_;
  const Superblock& superblock_;
  std::uint32_t segment_;
  std::uint32_t segment_blocks_;
  Buffer window_;
  std::uint32_t window_start_ = 0;
  std::uint32_t window_blocks_ = 0;
  std::vector<bool> window_bad_;
  std::uint64_t blocks_unreadable_ = 0;
};

}  // namespace sarsen
