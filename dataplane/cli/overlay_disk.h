// A disk whose writes stay in memory: recovery runs on a device that does not change by a bit.
//
// OverlayImage  BlockingDisk. Reads what was written to it, else what is below. Thread-safe.
// OverlayDisk   The same image as a Disk of one shard. Blocks the shard while it reads: for tools.
// Borrows       the disk below, which is opened read-only and outlives both.
// Bounded by    bytes_max of written blocks; more answers no_space.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "dataplane/runtime/env.h"

namespace sarsen {

class OverlayImage final : public BlockingDisk {
 public:
  static constexpr std::uint64_t kBytesMax = 2 * kGiB;

  explicit OverlayImage(BlockingDisk& below, std::uint64_t bytes_max = kBytesMax)
      : below_(below), blocks_max_(bytes_max / kBlockBytes) {}

  const DiskInfo& info() const override { return below_.info(); }
  Result<void> read(ByteOffset offset, std::span<std::byte> into) override;
  Result<void> write(ByteOffset offset, std::span<const std::byte> from) override;
  Result<void> flush() override { return {}; }
  // Forgets every write.
  void clear();

 private:
  using Block = std::array<std::byte, kBlockBytes>;
  BlockingDisk& below_;
  const std::uint64_t blocks_max_;
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Block>> written_;
};

class OverlayDisk final : public Disk {
 public:
  OverlayDisk(OverlayImage& image, Executor& executor) : image_(image), executor_(executor) {}
  const DiskInfo& info() const override { return image_.info(); }

 private:
  void submit(DiskOperation& operation) override;
  void withdraw(DiskOperation&) override {}
  Result<void> perform(const DiskOperation& operation);

  OverlayImage& image_;
  Executor& executor_;
};

}  // namespace sarsen
