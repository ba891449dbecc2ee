// FlushGuard: one flush of a device at a time, and none that counts after one that failed.
//
// A device that failed a flush may drop what the flush should have covered and then answer the next
// one with success (the "fsyncgate" of 2018). Several parts of a store share the device's cache:
// the data that a failed flush of one of them lost may be another one's. So after the first failure
// every flush fails, until the store is opened again and has written anew what it believes.
//
// Threads  thread-safe; flush() blocks. The shard calls it through a job of the blocking pool.
// Invariant I-STORE-10  No flush reports success after one that failed.
#pragma once

#include <mutex>
#include <optional>

#include "dataplane/runtime/env.h"

namespace sarsen {

class FlushGuard final : public BlockingDisk {
 public:
  FlushGuard(BlockingDisk& disk, FaultPoints& faults) : disk_(disk), faults_(faults) {}

  const DiskInfo& info() const override { return disk_.info(); }
  Result<void> read(ByteOffset offset, std::span<std::byte> into) override {
    return disk_.read(offset, into);
  }
  Result<void> write(ByteOffset offset, std::span<const std::byte> from) override {
    return disk_.write(offset, from);
  }
  Result<void> flush() override {
    const std::lock_guard lock(mutex_);
    if (failure_) return fail(*failure_);
    auto flushed = disk_.flush();
    if (flushed) return flushed;
    if (faults_.planted("store.swallow_failed_flush")) return {};
    failure_ = flushed.error();
    return flushed;
  }

 private:
  BlockingDisk& disk_;
  FaultPoints& faults_;
  std::mutex mutex_;
  std::optional<Error> failure_;
};

}  // namespace sarsen
