// BlockTarget: what a frontend (NBD, FUSE file + loop, ublk, vhost-user) serves.
//
// Implemented by an image session (the real thing) and by a memory target (tests). Offsets and
// lengths are bytes and may be any value within size(); a range that is not made of whole blocks
// costs a merge at the primary (rule R8), never a read-modify-write in the frontend.
//
// Shard     Used from the shard that made it. Many operations may be in flight; two that overlap
//           take effect in some order, and each 4 KiB block is a linearizable register.
// Durable   A write, trim or zeroing that completed is durable on every copy: flush() has nothing
// to
//           do but exists because clients call it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dataplane/base/result.h"
#include "dataplane/runtime/task.h"

namespace sarsen {

// A run of bytes that is all allocated or all unallocated (and then reads as zeros).
struct BlockStatus {
  std::uint64_t length_bytes = 0;
  bool allocated = false;
};

class BlockTarget {
 public:
  virtual ~BlockTarget() = default;

  virtual std::uint64_t size_bytes() const = 0;
  virtual bool read_only() const = 0;

  // Buffers stay valid until the operation completes.
  virtual Task<Result<void>> read(std::uint64_t offset, std::span<std::byte> into) = 0;
  virtual Task<Result<void>> write(std::uint64_t offset, std::span<const std::byte> from) = 0;
  // Afterwards the range reads as zeros and its whole blocks take no space.
  virtual Task<Result<void>> trim(std::uint64_t offset, std::uint64_t length) = 0;
  // Afterwards the range reads as zeros. `keep_allocated`: its space stays reserved.
  virtual Task<Result<void>> write_zeroes(std::uint64_t offset, std::uint64_t length,
                                          bool keep_allocated) = 0;
  virtual Task<Result<void>> flush() = 0;
  // Runs that cover [offset, offset + length), in order, at most `runs_max`; may end early.
  virtual Task<Result<std::vector<BlockStatus>>> status(std::uint64_t offset, std::uint64_t length,
                                                        std::uint32_t runs_max) = 0;
};

}  // namespace sarsen
