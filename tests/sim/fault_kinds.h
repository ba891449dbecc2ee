// The named kinds of faults: 16 of disks, 12 of networks, 16 of processes and time. Each has a rate
// per seed (swarm.h) and a counter, so that a run can show that it met them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sarsen::sim {

enum class FaultKind : std::uint8_t {
  d1_latency,         // slow, and "gray": 100 to 1000 times slower for a while
  d2_reorder,         // a later un-flushed write lands, an earlier one does not
  d3_drop_unflushed,  // un-flushed writes vanish when power is lost
  d4_torn_write,      // some sectors of a write land
  d5_garbage,         // a sector that was being written holds neither old nor new
  d6_bit_rot,         // a stored sector changes by itself
  d7_read_error,      // a read fails, once or until the place is rewritten
  d8_write_error,     // a write fails, and all later ones until the device is opened again
  d9_flush_error,     // a flush fails; the next says success, but what it should cover is lost
  d10_misdirected_write,
  d11_misdirected_read,
  d12_lost_write,       // reported done, never lands
  d13_stale_read,       // returns what was there before, once
  d14_no_space,         // a thin device has no room for a range never written before
  d15_device_vanishes,  // and returns: as it was, empty, or as it was long ago
  d16_flush_lies,
  n1_delay,
  n2_loss,
  n3_duplicate,
  n4_reorder,
  n5_clog,
  n6_swizzle_clog,
  n7_partition,
  n8_reset_mid_frame,
  n9_half_open,
  n10_byte_flip,
  n11_slow_receiver,
  n12_late_frames,
  p1_crash,  // the process dies between two events
  p2_crash_at_fault_point,
  p3_power_loss,  // of one node
  p4_power_loss_of_all,
  p5_pause,
  p6_crash_in_recovery,
  p7_crash_loop,
  p8_replaced,
  p9_version_change,
  p10_clock_jump,
  p11_clock_drift,
  p12_no_map_store,
  p13_client_dies,
  p14_forced_detach,
  p15_racing_admin,
  p16_no_memory,
};

inline constexpr std::size_t kFaultKinds = 44;
static_assert(static_cast<std::size_t>(FaultKind::p16_no_memory) + 1 == kFaultKinds);

constexpr std::size_t index_of(FaultKind kind) {
  return static_cast<std::size_t>(kind);
}

// "D4 torn write"
std::string_view name_of(FaultKind kind);

using FaultCounts = std::array<std::uint64_t, kFaultKinds>;

}  // namespace sarsen::sim
