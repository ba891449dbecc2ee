// A small device in memory for the tests of the metadata zone: it records every write and flush, so
// that a test can ask what power loss at any of them could have left, and it fails on request.
//
// Copies of an image share blocks, so that thousands of crash states cost little.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "dataplane/base/rng.h"
#include "dataplane/runtime/env.h"

namespace sarsen::test {

class DiskImage {
 public:
  explicit DiskImage(std::uint64_t size_bytes = 0) : blocks_(size_bytes / kBlockBytes) {}
  std::uint64_t size_bytes() const { return blocks_.size() * kBlockBytes; }
  void read(std::uint64_t offset, std::span<std::byte> into) const;
  void write(std::uint64_t offset, std::span<const std::byte> from);
  bool operator==(const DiskImage& other) const;

 private:
  using Block = std::array<std::byte, kBlockBytes>;
  std::vector<std::shared_ptr<const Block>> blocks_;  // null is zeros
};

struct DiskEvent {
  bool flush = false;
  std::uint64_t offset = 0;
  std::vector<std::byte> data;
};

// What power loss does to the writes that no flush covered.
enum class PowerLoss { keeps_nothing, keeps_everything, keeps_some_sectors, tears_last, garbles };
inline constexpr std::array kPowerLosses{PowerLoss::keeps_nothing, PowerLoss::keeps_everything,
                                         PowerLoss::keeps_some_sectors, PowerLoss::tears_last,
                                         PowerLoss::garbles};

// The image after `start`, the first `count` events, and power loss while the last was in flight.
DiskImage image_after_power_loss(const DiskImage& start, std::span<const DiskEvent> events,
                                 std::size_t count, PowerLoss loss, Rng& rng);

class MemoryDisk final : public BlockingDisk {
 public:
  explicit MemoryDisk(std::uint64_t size_bytes) : MemoryDisk(DiskImage(size_bytes)) {}
  explicit MemoryDisk(DiskImage image);

  const DiskInfo& info() const override { return info_; }
  Result<void> read(ByteOffset offset, std::span<std::byte> into) override;
  Result<void> write(ByteOffset offset, std::span<const std::byte> from) override;
  Result<void> flush() override;

  // Contents as a reader sees them.
  DiskImage image() const;
  // From now on `events` grows; `start` is the image at this moment.
  void record();
  const DiskImage& recorded_start() const { return start_; }
  const std::vector<DiskEvent>& events() const { return events_; }

  // Flips a bit in every sector of the range.
  void rot(std::uint64_t offset, std::uint64_t size);
  // Reads of these blocks fail until they are written.
  void make_unreadable(std::uint64_t offset, std::uint64_t size);
  // Writes of these blocks fail.
  void make_unwritable(std::uint64_t offset, std::uint64_t size);
  // The `count`th write or flush from now, and all after it, fail.
  void fail_changes_after(std::uint64_t count) { changes_left_ = count; }
  // Everything fails.
  void set_gone(bool gone) { gone_ = gone; }

  std::uint64_t bytes_written() const { return bytes_written_; }
  std::uint64_t bytes_read() const { return bytes_read_; }
  std::uint64_t writes() const { return writes_; }
  std::uint64_t flushes() const { return flushes_; }

 private:
  Result<void> change();

  DiskInfo info_;
  mutable std::mutex mutex_;
  DiskImage current_;
  bool recording_ = false;
  DiskImage start_;
  std::vector<DiskEvent> events_;
  std::set<std::uint64_t> unreadable_;  // blocks
  std::set<std::uint64_t> unwritable_;
  std::optional<std::uint64_t> changes_left_;
  bool gone_ = false;
  std::uint64_t bytes_written_ = 0;
  std::uint64_t bytes_read_ = 0;
  std::uint64_t writes_ = 0;
  std::uint64_t flushes_ = 0;
};

}  // namespace sarsen::test
