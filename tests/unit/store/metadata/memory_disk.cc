#include "tests/unit/store/metadata/memory_disk.h"

#include <algorithm>
#include <cstring>

#include "dataplane/base/assert.h"

namespace sarsen::test {
namespace {

constexpr std::size_t kSectorBytes = 512;

void write_some_sectors(DiskImage& image, const DiskEvent& event, PowerLoss loss, Rng& rng) {
  for (std::size_t at = 0; at < event.data.size(); at += kSectorBytes) {
    std::vector<std::byte> sector(
        event.data.begin() + static_cast<std::ptrdiff_t>(at),
        event.data.begin() + static_cast<std::ptrdiff_t>(at + kSectorBytes));
    if (loss == PowerLoss::garbles && rng.chance(0.25)) {
      for (std::byte& byte : sector) byte = static_cast<std::byte>(rng.next());
    } else if (rng.chance(0.5)) {
      continue;
    }
    image.write(event.offset + at, sector);
  }
}

// The first sectors of a write arrived, the rest did not.
void write_prefix(DiskImage& image, const DiskEvent& event, Rng& rng) {
  const std::size_t sectors = rng.below(event.data.size() / kSectorBytes + 1);
  image.write(event.offset, std::span(event.data).first(sectors * kSectorBytes));
}

}  // namespace

void DiskImage::read(std::uint64_t offset, std::span<std::byte> into) const {
  while (!into.empty()) {
    const std::uint64_t skipped = offset % kBlockBytes;
    const std::size_t size = std::min<std::uint64_t>(into.size(), kBlockBytes - skipped);
    if (const auto& block = blocks_[offset / kBlockBytes]) {
      std::memcpy(into.data(), block->data() + skipped, size);
    } else {
      std::memset(into.data(), 0, size);
    }
    into = into.subspan(size);
    offset += size;
  }
}

void DiskImage::write(std::uint64_t offset, std::span<const std::byte> from) {
  while (!from.empty()) {
    const std::uint64_t skipped = offset % kBlockBytes;
    const std::size_t size = std::min<std::uint64_t>(from.size(), kBlockBytes - skipped);
    auto& block = blocks_[offset / kBlockBytes];
    auto fresh = block ? std::make_shared<Block>(*block) : std::make_shared<Block>();
    std::memcpy(fresh->data() + skipped, from.data(), size);
    block = std::move(fresh);
    from = from.subspan(size);
    offset += size;
  }
}

bool DiskImage::operator==(const DiskImage& other) const {
  static const Block kZeros{};
  return std::ranges::equal(blocks_, other.blocks_, [](const auto& a, const auto& b) {
    return a == b || (a ? *a : kZeros) == (b ? *b : kZeros);
  });
}

DiskImage image_after_power_loss(const DiskImage& start, std::span<const DiskEvent> events,
                                 std::size_t count, PowerLoss loss, Rng& rng) {
  events = events.first(count);
  // A flush that is still in flight promises nothing.
  std::size_t stable = count;
  while (stable > 0 && !(events[stable - 1].flush && stable != count)) --stable;
  DiskImage image = start;
  for (std::size_t i = 0; i < count; ++i) {
    const DiskEvent& event = events[i];
    if (event.flush) continue;
    const bool last = i + 1 == count;
    if (i < stable || loss == PowerLoss::keeps_everything ||
        (loss == PowerLoss::tears_last && !last)) {
      image.write(event.offset, event.data);
    } else if (loss == PowerLoss::tears_last) {
      write_prefix(image, event, rng);
    } else if (loss != PowerLoss::keeps_nothing) {
      write_some_sectors(image, event, loss, rng);
    }
  }
  return image;
}

MemoryDisk::MemoryDisk(DiskImage image) : current_(std::move(image)) {
  info_.name = "memory";
  info_.size_bytes = current_.size_bytes();
}

Result<void> MemoryDisk::read(ByteOffset offset, std::span<std::byte> into) {
  SARSEN_ASSERT(offset.value % kBlockBytes == 0 && into.size() % kBlockBytes == 0 &&
                    reinterpret_cast<std::uintptr_t>(into.data()) % kBlockBytes == 0,
                "the caller aligns its I/O");
  SARSEN_ASSERT(offset.value + into.size() <= info_.size_bytes, "the caller stays on the device");
  const std::lock_guard lock(mutex_);
  if (gone_) return fail(make_error(RuntimeError::device_gone));
  const auto bad = unreadable_.lower_bound(offset.value / kBlockBytes);
  if (bad != unreadable_.end() && *bad * kBlockBytes < offset.value + into.size()) {
    return fail(make_error(RuntimeError::io_error, "read at " + std::to_string(offset.value)));
  }
  bytes_read_ += into.size();
  current_.read(offset.value, into);
  return {};
}

Result<void> MemoryDisk::change() {
  if (gone_) return fail(make_error(RuntimeError::device_gone));
  if (!changes_left_) return {};
  if (*changes_left_ == 0) return fail(make_error(RuntimeError::io_error, "fail_changes_after"));
  --*changes_left_;
  return {};
}

Result<void> MemoryDisk::write(ByteOffset offset, std::span<const std::byte> from) {
  SARSEN_ASSERT(offset.value % kBlockBytes == 0 && from.size() % kBlockBytes == 0 &&
                    reinterpret_cast<std::uintptr_t>(from.data()) % kBlockBytes == 0,
                "the caller aligns its I/O");
  SARSEN_ASSERT(offset.value + from.size() <= info_.size_bytes, "the caller stays on the device");
  const std::lock_guard lock(mutex_);
  SARSEN_TRY(change());
  const std::uint64_t begin = offset.value / kBlockBytes;
  const std::uint64_t end = begin + from.size() / kBlockBytes;
  const auto bad = unwritable_.lower_bound(begin);
  if (bad != unwritable_.end() && *bad < end) {
    return fail(make_error(RuntimeError::io_error, "write at " + std::to_string(offset.value)));
  }
  unreadable_.erase(unreadable_.lower_bound(begin), unreadable_.lower_bound(end));
  current_.write(offset.value, from);
  bytes_written_ += from.size();
  ++writes_;
  if (recording_) events_.push_back({false, offset.value, {from.begin(), from.end()}});
  return {};
}

Result<void> MemoryDisk::flush() {
  const std::lock_guard lock(mutex_);
  SARSEN_TRY(change());
  ++flushes_;
  if (recording_) events_.push_back({.flush = true, .data = {}});
  return {};
}

DiskImage MemoryDisk::image() const {
  const std::lock_guard lock(mutex_);
  return current_;
}

void MemoryDisk::record() {
  const std::lock_guard lock(mutex_);
  recording_ = true;
  start_ = current_;
  events_.clear();
}

void MemoryDisk::rot(std::uint64_t offset, std::uint64_t size) {
  const std::lock_guard lock(mutex_);
  for (std::uint64_t at = offset; at < offset + size; at += kSectorBytes) {
    std::array<std::byte, 1> byte{};
    current_.read(at + 100, byte);
    byte[0] ^= std::byte{0x10};
    current_.write(at + 100, byte);
  }
}

void MemoryDisk::make_unreadable(std::uint64_t offset, std::uint64_t size) {
  const std::lock_guard lock(mutex_);
  for (std::uint64_t at = offset; at < offset + size; at += kBlockBytes) {
    unreadable_.insert(at / kBlockBytes);
  }
}

void MemoryDisk::make_unwritable(std::uint64_t offset, std::uint64_t size) {
  const std::lock_guard lock(mutex_);
  for (std::uint64_t at = offset; at < offset + size; at += kBlockBytes) {
    unwritable_.insert(at / kBlockBytes);
  }
}

}  // namespace sarsen::test
