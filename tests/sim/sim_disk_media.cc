// The media of a SimDisk: what a completed operation does to the two images, and the faults.
#include <algorithm>
#include <array>
#include <cstring>

#include "dataplane/base/assert.h"
#include "tests/sim/sim_disk.h"

namespace sarsen::sim {

// ------------------------------------------------------------------------------------- operations

SimDisk::Outcome SimDisk::perform(DiskOperationKind kind, std::uint64_t offset,
                                  std::span<std::byte> data, std::uint64_t size,
                                  std::uint64_t flush_limit) {
  ++io_count_;
  if (io_left_) {
    if (*io_left_ == 0) return error(RuntimeError::io_error, "scripted failure of", offset);
    --*io_left_;
  }
  if (Outcome gone = device_state()) return gone;
  switch (kind) {
    case DiskOperationKind::read: return perform_read(offset, data);
    case DiskOperationKind::write: return perform_write(offset, data, /*durable=*/false);
    case DiskOperationKind::write_durable: return perform_write(offset, data, /*durable=*/true);
    case DiskOperationKind::flush: return perform_flush(flush_limit);
    case DiskOperationKind::discard: perform_discard(offset, size); return {};
  }
  return {};
}

bool SimDisk::is_due(std::optional<std::uint64_t>& countdown) {
  if (!countdown) return false;
  if ((*countdown)-- != 0) return false;
  countdown.reset();
  return true;
}

SimDisk::Outcome SimDisk::device_state() {
  if (vanish_at_ && io_count_ > *vanish_at_) {
    vanish_at_.reset();
    vanish();
    gone_until_ = simulator_.now();
  }
  if (!gone_ && simulator_.roll(FaultKind::d15_device_vanishes, rng_)) vanish();
  // For the process that had it open it is gone for good, as a removed device is on Linux: what was
  // in its cache is lost, and no later success may hide that.
  if (gone_) return error(RuntimeError::device_gone, "transfer to", 0);
  return {};
}

SimDisk::Outcome SimDisk::perform_read(std::uint64_t offset, std::span<std::byte> into) {
  if (simulator_.roll(FaultKind::d7_read_error, rng_)) {
    // For good only where the data may be lost; else the next read of the place works.
    if (rng_.chance(0.5) && may_spoil(FaultKind::d7_read_error, offset, kBlockBytes)) {
      bad_blocks_[offset / kBlockBytes] = true;
      spoil(FaultKind::d7_read_error, offset, kBlockBytes, /*transient=*/false);
    } else {
      spoil(FaultKind::d7_read_error, offset, into.size(), /*transient=*/true);
      return error(RuntimeError::io_error, "read of", offset);
    }
  }
  if (!bad_blocks_.empty()) {
    const auto bad = bad_blocks_.lower_bound(offset / kBlockBytes);
    if (bad != bad_blocks_.end() && bad->first * kBlockBytes < offset + into.size()) {
      return error(RuntimeError::io_error, "read of a bad block of", bad->first * kBlockBytes);
    }
  }
  if (simulator_.roll(FaultKind::d6_bit_rot, rng_)) rot_one_sector(offset, into.size());
  current_.read(offset, into);
  misread(offset, into);
  return {};
}

SimDisk::Outcome SimDisk::perform_write(std::uint64_t offset, std::span<const std::byte> from,
                                        bool durable) {
  if (write_failed_) return error(RuntimeError::io_error, "write (after a failed one) of", offset);
  if (is_due(write_to_fail_)) {
    land_some_sectors(offset, from, durable);
    return error(RuntimeError::io_error, "scripted failure of a write of", offset);
  }
  if (simulator_.roll(FaultKind::d8_write_error, rng_)) {
    simulator_.count(FaultKind::d8_write_error);
    write_failed_ = true;
    land_some_sectors(offset, from, durable);
    return error(RuntimeError::io_error, "write of", offset);
  }
  if (!current_.allocated(offset, from.size())) {
    if (simulator_.roll(FaultKind::d14_no_space, rng_)) {
      full_until_ =
          simulator_.now() + microseconds(static_cast<std::int64_t>(rng_.between(1, 100'000)));
    }
    if (simulator_.now() < full_until_) {
      simulator_.count(FaultKind::d14_no_space);
      return error(RuntimeError::no_space, "write of a fresh range of", offset);
    }
  }
  remember(offset, from);
  if (simulator_.roll(FaultKind::d12_lost_write, rng_) &&
      may_spoil(FaultKind::d12_lost_write, offset, from.size())) {
    spoil(FaultKind::d12_lost_write, offset, from.size(), /*transient=*/false);
    return {};
  }
  if (simulator_.roll(FaultKind::d10_misdirected_write, rng_)) {
    const std::uint64_t wrong = other_place(offset, from.size());
    if (wrong != offset && may_spoil(FaultKind::d10_misdirected_write, offset, from.size()) &&
        may_spoil(FaultKind::d10_misdirected_write, wrong, from.size())) {
      land(wrong, from, durable);
      spoil(FaultKind::d10_misdirected_write, offset, from.size(), /*transient=*/false);
      spoil(FaultKind::d10_misdirected_write, wrong, from.size(), /*transient=*/false);
      return {};
    }
  }
  land(offset, from, durable);
  return {};
}

SimDisk::Outcome SimDisk::perform_flush(std::uint64_t limit) {
  if (write_failed_) return error(RuntimeError::io_error, "flush (after a failed write) of", 0);
  const bool fails = is_due(flush_to_fail_) || simulator_.roll(FaultKind::d9_flush_error, rng_);
  if (!fails && simulator_.roll(FaultKind::d16_flush_lies, rng_) &&
      may_spoil(FaultKind::d16_flush_lies, 0, info_.size_bytes)) {
    spoil(FaultKind::d16_flush_lies, 0, info_.size_bytes, /*transient=*/true);
    return {};
  }
  auto& writes = cache_.writes();
  for (auto entry = writes.begin(); entry != writes.end() && entry->number < limit;) {
    // A failed flush forgets some of what it covered: reads still see it, no later flush lands it.
    if (!fails || rng_.chance(0.5)) {
      WriteCache::for_each_live_run(
          *entry,
          [this](std::uint64_t at, std::span<const std::byte> bytes) { land_stable(at, bytes); });
    }
    entry = cache_.remove(entry);
  }
  if (!fails) return {};
  simulator_.count(FaultKind::d9_flush_error);
  return error(RuntimeError::io_error, "flush of", 0);
}

// The contents become unspecified: zeros, what was there, or rubbish.
void SimDisk::perform_discard(std::uint64_t offset, std::uint64_t size) {
  const std::uint64_t choice = rng_.below(3);
  if (choice == 0) return;
  if (choice == 1 && size <= 64 * kKiB) {
    std::vector<std::byte> rubbish(size, static_cast<std::byte>(rng_.next()));
    land(offset, rubbish, /*durable=*/true);
    return;
  }
  cache_.settle(offset, size, cache_.next_number());
  current_.zero(offset, size);
  stable_.zero(offset, size);
  ledger_.heal(ByteOffset(offset), size);
}

// ---------------------------------------------------------------------------------------- landing

void SimDisk::land(std::uint64_t offset, std::span<const std::byte> from, bool durable) {
  current_.write(offset, from);
  if (!bad_blocks_.empty()) {
    bad_blocks_.erase(bad_blocks_.lower_bound(offset / kBlockBytes),
                      bad_blocks_.lower_bound((offset + from.size()) / kBlockBytes));
  }
  recent_[recent_next_++ % recent_.size()] = offset;
  if (durable || !info_.volatile_cache) {
    cache_.settle(offset, from.size(), cache_.next_number());
    land_stable(offset, from);
    return;
  }
  cache_.add(offset, from);
  while (cache_.bytes() > options_.cache_bytes_max) write_back_one();
}

void SimDisk::land_stable(std::uint64_t offset, std::span<const std::byte> from) {
  stable_.write(offset, from);
  ledger_.heal(ByteOffset(offset), from.size());
}

// A failed write: any of its sectors, in any order.
void SimDisk::land_some_sectors(std::uint64_t offset, std::span<const std::byte> from,
                                bool durable) {
  for (std::size_t at = 0; at < from.size(); at += kSectorBytes) {
    if (rng_.chance(0.5)) land(offset + at, from.subspan(at, kSectorBytes), durable);
  }
}

void SimDisk::write_back_one() {
  auto entry = cache_.writes().begin();
  const bool in_order = !simulator_.roll(FaultKind::d2_reorder, rng_);
  const std::uint64_t skipped =
      in_order ? 0 : rng_.below(std::min<std::size_t>(cache_.writes().size(), 16));
  if (skipped != 0) simulator_.count(FaultKind::d2_reorder);
  std::advance(entry, skipped);
  WriteCache::for_each_live_run(*entry, [this](std::uint64_t at, std::span<const std::byte> bytes) {
    land_stable(at, bytes);
  });
  const std::uint64_t offset = entry->offset;
  const std::uint64_t size = entry->data.size();
  const std::uint64_t number = entry->number;
  // An older write of the same place must not land over it later; a newer one still may.
  cache_.remove(entry);
  cache_.settle(offset, size, number);
}

void SimDisk::settle_cache() {
  using enum FaultKind;
  const Swarm& swarm = simulator_.swarm();
  const bool lossy =
      (swarm.rate(d3_drop_unflushed) > 0 || swarm.rate(d4_torn_write) > 0) && !rng_.chance(0.1);
  const bool any_order = rng_.chance(swarm.rate(d2_reorder));
  const std::uint64_t kept_in_order = rng_.below(cache_.writes().size() + 1);
  std::uint64_t index = 0;
  bool dropped_one = false;
  for (const UnflushedWrite& entry : cache_.writes()) {
    const bool dropped =
        lossy && (any_order ? rng_.chance(swarm.rate(d3_drop_unflushed))
                            : swarm.rate(d3_drop_unflushed) > 0 && index >= kept_in_order);
    ++index;
    if (dropped) {
      simulator_.count(d3_drop_unflushed);
      dropped_one = true;
      continue;
    }
    if (dropped_one) simulator_.count(d2_reorder);
    if (lossy && rng_.chance(swarm.rate(d4_torn_write))) {
      tear(entry);
      dropped_one = dropped_one || !any_order;
    } else {
      WriteCache::for_each_live_run(
          entry,
          [this](std::uint64_t at, std::span<const std::byte> bytes) { land_stable(at, bytes); });
    }
  }
  cache_.clear();
  current_ = stable_;
}

// Lands a prefix, a suffix, the middle, or any sectors; the others may become garbage.
void SimDisk::tear(const UnflushedWrite& entry) {
  simulator_.count(FaultKind::d4_torn_write);
  const std::size_t sectors = entry.live.size();
  const std::uint64_t style = rng_.below(4);
  const std::size_t a = rng_.below(sectors + 1);
  const std::size_t b = rng_.below(sectors + 1);
  for (std::size_t sector = 0; sector < sectors; ++sector) {
    if (entry.live[sector] == 0) continue;
    bool lands = rng_.chance(0.5);
    if (style == 0) lands = sector < a;
    if (style == 1) lands = sector >= a;
    if (style == 2) lands = sector >= std::min(a, b) && sector < std::max(a, b);
    const std::uint64_t at = entry.offset + sector * kSectorBytes;
    if (lands) {
      land_stable(at, std::span(entry.data).subspan(sector * kSectorBytes, kSectorBytes));
    } else if (rng_.chance(simulator_.swarm().rate(FaultKind::d5_garbage))) {
      simulator_.count(FaultKind::d5_garbage);
      land_stable(at, garbage_sector());
    }
  }
}

std::array<std::byte, kSectorBytes> SimDisk::garbage_sector() {
  std::array<std::byte, kSectorBytes> garbage;
  const std::uint64_t style = rng_.below(4);
  garbage.fill(style == 0 ? std::byte{0} : std::byte{0xff});
  if (style >= 2) {
    for (std::byte& byte : garbage) byte = static_cast<std::byte>(rng_.next());
  }
  return garbage;
}

// ------------------------------------------------------------------------------------------ faults

void SimDisk::vanish() {
  simulator_.count(FaultKind::d15_device_vanishes);
  ++times_vanished_;
  settle_in_flight(/*power_lost=*/true);
  for (Transfer& transfer : transfers_) {
    if (transfer.operation != nullptr) transfer.device_was_lost = true;
  }
  settle_cache();
  gone_ = true;
  gone_until_ =
      simulator_.now() + microseconds(static_cast<std::int64_t>(rng_.between(10, 200'000)));
}

void SimDisk::return_device() {
  gone_ = false;
  if (!rng_.chance(0.5) || !may_spoil(FaultKind::d15_device_vanishes, 0, info_.size_bytes)) return;
  stable_ = rng_.chance(0.5) ? older_ : SparseImage(info_.size_bytes);
  current_ = stable_;
  ++times_replaced_;
  spoil(FaultKind::d15_device_vanishes, 0, info_.size_bytes, /*transient=*/false);
}

bool SimDisk::may_spoil(FaultKind kind, std::uint64_t offset, std::uint64_t size) {
  return may_spoil_ && may_spoil_(kind, ByteOffset(offset), size);
}

void SimDisk::spoil(FaultKind kind, std::uint64_t offset, std::uint64_t size, bool transient) {
  if (kind != FaultKind::d15_device_vanishes) simulator_.count(kind);
  ledger_.record({kind, ByteOffset(offset), size, simulator_.now(), transient});
}

void SimDisk::forgive() {
  const std::lock_guard lock(mutex_);
  ledger_ = {};
  bad_blocks_.clear();
}

void SimDisk::rot(ByteOffset offset, std::uint64_t size) {
  const std::lock_guard lock(mutex_);
  std::vector<std::byte> bytes(size);
  current_.read(offset.value, bytes);
  for (std::byte& byte : bytes) byte ^= std::byte{0x55};
  cache_.settle(offset.value, size, cache_.next_number());
  current_.write(offset.value, bytes);
  stable_.write(offset.value, bytes);
  spoil(FaultKind::d6_bit_rot, offset.value, size, /*transient=*/false);
}

void SimDisk::rot_one_sector(std::uint64_t offset, std::uint64_t size) {
  const std::uint64_t at = offset + kSectorBytes * rng_.below(size / kSectorBytes);
  const std::uint64_t block = round_down(at, kBlockBytes);
  if (cache_.touches(block, kBlockBytes)) return;  // a flush would heal it
  if (!may_spoil(FaultKind::d6_bit_rot, block, kBlockBytes)) return;
  std::array<std::byte, kSectorBytes> sector;
  current_.read(at, sector);
  for (std::uint64_t flips = rng_.between(1, 8); flips != 0; --flips) {
    sector[rng_.below(sector.size())] ^= static_cast<std::byte>(1u << rng_.below(8));
  }
  current_.write(at, sector);
  stable_.write(at, sector);
  spoil(FaultKind::d6_bit_rot, block, kBlockBytes, /*transient=*/false);
}

// Gives another place's bytes (D11) or what was there before (D13), once.
void SimDisk::misread(std::uint64_t offset, std::span<std::byte> into) {
  if (simulator_.roll(FaultKind::d11_misdirected_read, rng_)) {
    const std::uint64_t wrong = other_place(offset, into.size());
    if (wrong != offset && may_spoil(FaultKind::d11_misdirected_read, offset, into.size())) {
      current_.read(wrong, into);
      spoil(FaultKind::d11_misdirected_read, offset, into.size(), /*transient=*/true);
    }
  }
  if (!simulator_.roll(FaultKind::d13_stale_read, rng_)) return;
  for (const Previous& previous : previous_) {
    if (previous.bytes.empty() || previous.offset < offset ||
        previous.offset + previous.bytes.size() > offset + into.size()) {
      continue;
    }
    if (!may_spoil(FaultKind::d13_stale_read, previous.offset, previous.bytes.size())) return;
    std::memcpy(into.data() + (previous.offset - offset), previous.bytes.data(),
                previous.bytes.size());
    spoil(FaultKind::d13_stale_read, previous.offset, previous.bytes.size(), /*transient=*/true);
    return;
  }
}

void SimDisk::remember(std::uint64_t offset, std::span<const std::byte> from) {
  if (simulator_.swarm().rate(FaultKind::d13_stale_read) <= 0 || from.size() > 64 * kKiB) return;
  Previous& previous = previous_[previous_next_++ % previous_.size()];
  previous.offset = offset;
  previous.bytes.resize(from.size());
  current_.read(offset, previous.bytes);
}

// A place that was written lately, where the bytes look plausible; or a neighbour.
std::uint64_t SimDisk::other_place(std::uint64_t offset, std::uint64_t size) {
  const std::uint64_t place = rng_.chance(0.7)
                                  ? round_down(recent_[rng_.below(recent_.size())], kBlockBytes)
                                  : offset + kBlockBytes * rng_.between(1, 4);
  const bool overlaps = place < offset + size && offset < place + size;
  return overlaps || place + size > info_.size_bytes ? offset : place;
}

}  // namespace sarsen::sim
