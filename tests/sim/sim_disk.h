// SimDisk: a device in memory that outlives the processes which use it, with a volatile write cache
// and the faults D1 to D16.
//
// Two images. `current` is what reads see: every completed write. `stable` is what survives power
// loss for certain: durable writes, and writes that a flush covered (those that had completed when
// the flush started). Between them is the list of un-flushed writes, of which power loss keeps any
// part.
//
// Lifecycle  Made by Simulator::add_disk(). A node opens it on start and loses it in a crash.
// Threads    Locked, because blocking I/O may come from threads of a library while a job waits for
//            them; the run repeats only if one of them runs at a time.
// Faults     Rates come from the simulator's swarm. A fault that destroys data, or that gives one
//            wrong answer, first asks may_spoil and is written to the ledger. Without may_spoil no
//            such fault happens.
#pragma once

#include <array>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/disk_log.h"
#include "tests/sim/sim_node.h"
#include "tests/sim/spoil_ledger.h"
#include "tests/sim/write_cache.h"

namespace sarsen::sim {

class SimDiskPort;

// Mean of the exponential part, added to a fixed part of the same size.
struct DiskLatency {
  Duration read = microseconds(40);
  Duration write = microseconds(10);
  Duration flush = microseconds(80);
  Duration per_kib = nanoseconds(300);
};

struct SimDiskOptions {
  std::string name = "sim0";
  std::uint64_t size_bytes = 64 * kMiB;
  bool volatile_cache = true;
  bool rotational = false;
  bool can_discard = true;
  // A full cache writes something back by itself.
  std::uint64_t cache_bytes_max = 4 * kMiB;
  DiskLatency latency = {};
};

class SimDisk final : public EventSink {
 public:
  // Whether the fault may spoil the range; the harness keeps one good copy, or expects the error.
  using MaySpoil = std::function<bool(FaultKind kind, ByteOffset offset, std::uint64_t size)>;

  SimDisk(Simulator& simulator, SimDiskOptions options, Rng rng);

  const DiskInfo& info() const { return info_; }

  // ----------------------------------------------------------------------------- for the harness
  void set_may_spoil(MaySpoil may_spoil) { may_spoil_ = std::move(may_spoil); }
  const SpoilLedger& ledger() const { return ledger_; }
  // Records into `log` (borrowed) from now on; nullptr ends it.
  void set_log(DiskLog* log) { log_ = log; }
  const SparseImage& current() const { return current_; }
  const SparseImage& stable() const { return stable_; }
  // Replaces the contents; nothing is in flight, nothing un-flushed remains.
  void set_image(SparseImage image);
  std::uint64_t unflushed_bytes() const { return cache_.bytes(); }
  // Spoils the stored bytes of a range at once, as D6 does; for scripted tests.
  void rot(ByteOffset offset, std::uint64_t size);
  // Every later I/O of this incarnation fails, from the `count`th from now on; for n-th failure
  // loops.
  void fail_after(std::uint64_t count) { io_left_ = count; }
  // The `count`th write, or flush, from now on fails, and that one only. A failed write lands in
  // part, a failed flush forgets part of what it covered.
  void fail_one_write(std::uint64_t count) { write_to_fail_ = count; }
  void fail_one_flush(std::uint64_t count) { flush_to_fail_ = count; }
  // Whether such a failure is still to come.
  bool failure_is_to_come() const { return write_to_fail_ || flush_to_fail_; }
  // The device vanishes at the `count`th I/O from now on, and is back when the process starts
  // again.
  void vanish_after(std::uint64_t count) { vanish_at_ = io_count_ + count; }
  std::uint64_t io_count() const { return io_count_; }
  // How often it vanished, each time losing its cache (D15).
  std::uint64_t times_vanished() const { return times_vanished_; }
  // How often it came back with another content: empty, or as it was long ago (D15).
  std::uint64_t times_replaced() const { return times_replaced_; }
  // What it spoilt no longer matters to anybody: all of it is about to be written anew.
  void forgive();
  std::uint64_t power_losses() const { return power_losses_; }
  // Blocking I/O that no job waited for: from a thread that runs beside the simulator, so that the
  // run may not repeat (or from a test, between events).
  std::uint64_t stray_blocking_io() const { return stray_blocking_io_; }

  // --------------------------------------------------------------------------------- for SimNode
  void open();
  // The outcome of transfers in flight is decided; the cache keeps what it has.
  void lose_process();
  // The same, and the cache loses any part of what was not flushed.
  void lose_power();

  // ------------------------------------------------------------------------------- for the ports
  void submit(SimDiskPort& port, DiskOperation& operation);
  void withdraw(DiskOperation& operation);
  Result<void> blocking_io(SimNode& node, DiskOperationKind kind, ByteOffset offset,
                           std::span<std::byte> data);

  void on_event(std::uint64_t slot) override;

 private:
  struct Transfer {
    DiskOperation* operation = nullptr;  // null when the slot is free
    SimDiskPort* port = nullptr;
    EventToken event = 0;
    std::uint64_t flush_limit = 0;  // a flush covers cache entries below this number
    DiskLogId log_id = 0;
    bool device_was_lost = false;
  };
  using Outcome = std::optional<Error>;

  void check(DiskOperationKind kind, ByteOffset offset, std::uint64_t size) const;
  Duration latency_of(DiskOperationKind kind, std::uint64_t size);
  void free_slot(std::uint64_t slot);

  // What happens to the media when an operation completes; draws its faults.
  Outcome perform(DiskOperationKind kind, std::uint64_t offset, std::span<std::byte> data,
                  std::uint64_t size, std::uint64_t flush_limit);
  Outcome perform_read(std::uint64_t offset, std::span<std::byte> into);
  Outcome perform_write(std::uint64_t offset, std::span<const std::byte> from, bool durable);
  Outcome perform_flush(std::uint64_t limit);
  void perform_discard(std::uint64_t offset, std::uint64_t size);
  static bool is_due(std::optional<std::uint64_t>& countdown);
  Outcome device_state();
  void vanish();
  void return_device();

  void land(std::uint64_t offset, std::span<const std::byte> from, bool durable);
  void land_stable(std::uint64_t offset, std::span<const std::byte> from);
  void land_some_sectors(std::uint64_t offset, std::span<const std::byte> from, bool durable);
  void write_back_one();
  void settle_cache();
  void tear(const UnflushedWrite& entry);
  std::array<std::byte, kSectorBytes> garbage_sector();
  void settle_in_flight(bool power_lost);
  void remember(std::uint64_t offset, std::span<const std::byte> from);

  bool may_spoil(FaultKind kind, std::uint64_t offset, std::uint64_t size);
  void spoil(FaultKind kind, std::uint64_t offset, std::uint64_t size, bool transient);
  void rot_one_sector(std::uint64_t offset, std::uint64_t size);
  void misread(std::uint64_t offset, std::span<std::byte> into);
  std::uint64_t other_place(std::uint64_t offset, std::uint64_t size);
  Error error(RuntimeError code, std::string_view doing, std::uint64_t offset) const;

  Simulator& simulator_;
  SimDiskOptions options_;
  DiskInfo info_;
  Rng rng_;
  std::mutex mutex_;
  SparseImage current_;
  SparseImage stable_;
  SparseImage older_;  // for a device that comes back as it was long ago
  WriteCache cache_;
  std::vector<Transfer> transfers_;
  std::vector<std::uint64_t> free_slots_;
  SpoilLedger ledger_;
  MaySpoil may_spoil_;
  DiskLog* log_ = nullptr;
  std::uint64_t io_count_ = 0;
  std::uint64_t times_vanished_ = 0;
  std::uint64_t times_replaced_ = 0;
  std::uint64_t power_losses_ = 0;
  std::uint64_t stray_blocking_io_ = 0;
  std::optional<std::uint64_t> io_left_;
  std::optional<std::uint64_t> write_to_fail_;  // 0: the next
  std::optional<std::uint64_t> flush_to_fail_;
  std::optional<std::uint64_t> vanish_at_;  // counted like io_count_

  // What is broken at the moment.
  BootTime gray_until_;
  std::int64_t gray_factor_ = 1;
  BootTime full_until_;
  BootTime gone_until_;
  bool gone_ = false;
  bool write_failed_ = false;
  std::map<std::uint64_t, bool> bad_blocks_;  // reads fail until rewritten
  struct Previous {
    std::uint64_t offset = 0;
    std::vector<std::byte> bytes;
  };
  std::vector<Previous> previous_;  // a ring, kept only in seeds with D13
  std::size_t previous_next_ = 0;
  std::vector<std::uint64_t> recent_;  // a ring of offsets written lately
  std::size_t recent_next_ = 0;
};

}  // namespace sarsen::sim

#include "tests/sim/sim_disk_ports.h"
