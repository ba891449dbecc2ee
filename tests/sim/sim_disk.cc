// Transfers: submission, completion, and what a crash does to those in flight. What happens to the
// media is in sim_disk_media.cc.
#include "tests/sim/sim_disk.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "dataplane/base/assert.h"

namespace sarsen::sim {
namespace {

constexpr std::size_t kRecentMax = 64;

}  // namespace

SimDisk::SimDisk(Simulator& simulator, SimDiskOptions options, Rng rng)
    : simulator_(simulator),
      options_(std::move(options)),
      info_{options_.name, options_.size_bytes, options_.volatile_cache, options_.rotational,
            options_.can_discard},
      rng_(rng),
      current_(options_.size_bytes),
      stable_(options_.size_bytes),
      older_(options_.size_bytes),
      cache_(options_.size_bytes),
      previous_(kRecentMax),
      recent_(kRecentMax) {
  SARSEN_ASSERT(info_.size_bytes % kBlockBytes == 0, "a device is made of whole blocks");
}

Error SimDisk::error(RuntimeError code, std::string_view doing, std::uint64_t offset) const {
  return make_error(code, std::string(doing) + " " + info_.name + " at " + std::to_string(offset));
}

void SimDisk::set_image(SparseImage image) {
  const std::lock_guard lock(mutex_);
  SARSEN_ASSERT(image.size_bytes() == info_.size_bytes, "an image has the size of its device");
  SARSEN_ASSERT(free_slots_.size() == transfers_.size(), "nothing is in flight");
  cache_.clear();
  bad_blocks_.clear();
  stable_ = std::move(image);
  current_ = stable_;
}

void SimDisk::open() {
  const std::lock_guard lock(mutex_);
  write_failed_ = false;
  io_left_.reset();
  vanish_at_.reset();
  if (gone_ && simulator_.now() >= gone_until_) return_device();
  if (rng_.chance(0.25)) older_ = stable_;
}

void SimDisk::check(DiskOperationKind kind, ByteOffset offset, std::uint64_t size) const {
  SARSEN_ASSERT(offset.value % kBlockBytes == 0 && size % kBlockBytes == 0,
                "transfers are made of whole blocks");
  SARSEN_ASSERT(offset.value + size <= info_.size_bytes, "transfers stay within the device");
  if (kind == DiskOperationKind::flush) return;
  SARSEN_ASSERT(size != 0, "a transfer moves something");
  for (const Transfer& other : transfers_) {
    if (other.operation == nullptr || other.operation->kind() == DiskOperationKind::flush) continue;
    if (kind == DiskOperationKind::read && other.operation->kind() == DiskOperationKind::read) {
      continue;
    }
    const std::uint64_t start = other.operation->offset().value;
    SARSEN_ASSERT(offset.value + size <= start || start + other.operation->size() <= offset.value,
                  "overlapping transfers, one of them a write, are not in flight together");
  }
}

Duration SimDisk::latency_of(DiskOperationKind kind, std::uint64_t size) {
  if (simulator_.roll(FaultKind::d1_latency, rng_)) {
    simulator_.count(FaultKind::d1_latency);
    gray_factor_ = static_cast<std::int64_t>(rng_.between(100, 1000));
    gray_until_ = simulator_.now() + milliseconds(static_cast<std::int64_t>(rng_.between(1, 2000)));
  }
  Duration mean = options_.latency.write;
  if (kind == DiskOperationKind::read) mean = options_.latency.read;
  if (kind == DiskOperationKind::flush) mean = options_.latency.flush;
  const double extra = -std::log(1.0 - rng_.unit());
  const double ns =
      static_cast<double>(mean.value) * (1.0 + extra) +
      static_cast<double>(options_.latency.per_kib.value) * static_cast<double>(size / kKiB);
  const std::int64_t factor = simulator_.now() < gray_until_ ? gray_factor_ : 1;
  return Duration(static_cast<std::int64_t>(ns) * factor);
}

void SimDisk::submit(SimDiskPort& port, DiskOperation& operation) {
  const std::lock_guard lock(mutex_);
  check(operation.kind(), operation.offset(), operation.size());
  if (free_slots_.empty()) {
    free_slots_.push_back(transfers_.size());
    transfers_.emplace_back();
  }
  const std::uint64_t slot = free_slots_.back();
  free_slots_.pop_back();
  Transfer& transfer = transfers_[slot];
  transfer = {&operation, &port, 0, cache_.next_number(), 0, false};
  operation.scratch = slot + 1;
  if (log_ != nullptr) {
    const bool has_bytes = operation.kind() == DiskOperationKind::write ||
                           operation.kind() == DiskOperationKind::write_durable;
    transfer.log_id =
        log_->submitted(operation.kind(), operation.offset().value,
                        {operation.data(), has_bytes ? operation.size() : 0}, operation.size());
  }
  transfer.event = simulator_.post(latency_of(operation.kind(), operation.size()), EventKind::disk,
                                   port.executor().place(), *this, slot);
}

void SimDisk::free_slot(std::uint64_t slot) {
  transfers_[slot].operation->scratch = 0;
  transfers_[slot].operation = nullptr;
  free_slots_.push_back(slot);
}

void SimDisk::withdraw(DiskOperation& operation) {
  if (operation.scratch == 0) return;  // its outcome was decided when the process died
  const std::lock_guard lock(mutex_);
  const std::uint64_t slot = operation.scratch - 1;
  simulator_.cancel(transfers_[slot].event);
  free_slot(slot);
}

void SimDisk::on_event(std::uint64_t slot) {
  DiskOperation* operation;
  SimDiskPort* port;
  Outcome outcome;
  {
    const std::lock_guard lock(mutex_);
    const Transfer transfer = transfers_[slot];
    operation = transfer.operation;
    port = transfer.port;
    if (transfer.device_was_lost) {
      outcome = error(RuntimeError::device_gone, "transfer to", operation->offset().value);
    } else {
      outcome = perform(operation->kind(), operation->offset().value,
                        {operation->data(), operation->data() != nullptr ? operation->size() : 0},
                        operation->size(), transfer.flush_limit);
    }
    if (log_ != nullptr && !outcome) log_->completed(transfer.log_id);
    free_slot(slot);
  }
  simulator_.trace(EventKind::outcome, port->executor().place(), operation->offset().value,
                   (operation->size() << 8) | static_cast<std::uint64_t>(operation->kind()),
                   outcome ? static_cast<std::uint64_t>(outcome->code()) : 0);
  port->executor().deliver(operation->finish(std::move(outcome)));
}

Result<void> SimDisk::blocking_io(SimNode& node, DiskOperationKind kind, ByteOffset offset,
                                  std::span<std::byte> data) {
  std::optional<CrashKind> crash;
  Outcome outcome;
  {
    const std::lock_guard lock(mutex_);
    check(kind, offset, data.size());
    if (!node.in_job()) ++stray_blocking_io_;
    node.add_blocking_time(latency_of(kind, data.size()));
    DiskLogId log_id = 0;
    if (log_ != nullptr) {
      const bool has_bytes = kind == DiskOperationKind::write;
      log_id =
          log_->submitted(kind, offset.value, data.first(has_bytes ? data.size() : 0), data.size());
    }
    if (simulator_.roll(FaultKind::p2_crash_at_fault_point, rng_)) {
      crash = CrashKind::process_kill;
      simulator_.count(FaultKind::p2_crash_at_fault_point);
    } else if (rng_.chance(0.1) && simulator_.roll(FaultKind::p3_power_loss, rng_)) {
      crash = CrashKind::power_loss;
      simulator_.count(FaultKind::p3_power_loss);
    }
    if (!crash) {
      outcome = perform(kind, offset.value, data, data.size(), cache_.next_number());
      if (log_ != nullptr && !outcome) log_->completed(log_id);
    } else if (kind == DiskOperationKind::write && rng_.chance(0.67)) {
      land(offset.value, data, /*durable=*/false);  // in flight; power loss may still tear it
    }
  }
  if (crash) {
    node.crash(*crash);
    return fail(error(RuntimeError::device_gone, "blocking transfer to", offset.value));
  }
  simulator_.trace(EventKind::outcome, node.place(ShardId(0)), offset.value,
                   (data.size() << 8) | static_cast<std::uint64_t>(kind),
                   outcome ? static_cast<std::uint64_t>(outcome->code()) : 0);
  if (outcome) return fail(*std::move(outcome));
  return {};
}

// Decides which of the writes in flight reach the device, while their memory is still valid.
void SimDisk::settle_in_flight(bool power_lost) {
  for (Transfer& transfer : transfers_) {
    if (transfer.operation == nullptr || transfer.device_was_lost) continue;
    const DiskOperation& operation = *transfer.operation;
    const bool is_write = operation.kind() == DiskOperationKind::write ||
                          operation.kind() == DiskOperationKind::write_durable;
    if (is_write && !gone_ && !write_failed_ && rng_.chance(0.67)) {
      // After a kill the kernel may have passed on only the first blocks of a long write; at power
      // loss the cache is settled next, and tears it sector by sector.
      std::uint64_t size = operation.size();
      if (!power_lost && rng_.chance(0.2)) {
        size = kBlockBytes * rng_.between(1, size / kBlockBytes);
      }
      land(operation.offset().value, {operation.data(), size}, /*durable=*/false);
    }
    if (operation.kind() == DiskOperationKind::discard && rng_.chance(0.5)) {
      perform_discard(operation.offset().value, operation.size());
    }
  }
}

void SimDisk::lose_process() {
  const std::lock_guard lock(mutex_);
  settle_in_flight(/*power_lost=*/false);
  for (std::uint64_t slot = 0; slot < transfers_.size(); ++slot) {
    if (transfers_[slot].operation == nullptr) continue;
    simulator_.cancel(transfers_[slot].event);
    free_slot(slot);
  }
  // A device without a volatile cache has nowhere to keep them.
  if (!info_.volatile_cache) {
    while (!cache_.empty()) write_back_one();
  }
}

void SimDisk::lose_power() {
  const std::lock_guard lock(mutex_);
  ++power_losses_;
  settle_in_flight(/*power_lost=*/true);
  settle_cache();
  for (std::uint64_t slot = 0; slot < transfers_.size(); ++slot) {
    if (transfers_[slot].operation == nullptr) continue;
    simulator_.cancel(transfers_[slot].event);
    free_slot(slot);
  }
}

}  // namespace sarsen::sim
