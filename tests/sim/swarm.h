// What one seed does to the world. Every kind of fault is off in about half of the seeds, so that
// each seed is a different subset (swarm testing) and rare combinations get seeds of their own.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

#include "dataplane/base/rng.h"
#include "dataplane/runtime/env.h"
#include "tests/sim/fault_kinds.h"

namespace sarsen::sim {

// Kinds that a workload can live with.
class FaultProfile {
 public:
  constexpr FaultProfile() = default;
  constexpr FaultProfile(std::initializer_list<FaultKind> kinds) {
    for (const FaultKind kind : kinds) bits_ |= bit(kind);
  }
  constexpr bool allows(FaultKind kind) const { return (bits_ & bit(kind)) != 0; }
  constexpr FaultProfile with(FaultKind kind) const {
    FaultProfile wider = *this;
    wider.bits_ |= bit(kind);
    return wider;
  }

  constexpr FaultProfile without(FaultKind kind) const {
    FaultProfile narrower = *this;
    narrower.bits_ &= ~bit(kind);
    return narrower;
  }

  static constexpr FaultProfile none() { return {}; }
  // What a correct store on one device survives without losing anything acknowledged.
  static constexpr FaultProfile survivable() {
    using enum FaultKind;
    return {d1_latency,
            d2_reorder,
            d3_drop_unflushed,
            d4_torn_write,
            d5_garbage,
            d7_read_error,
            d8_write_error,
            d9_flush_error,
            d14_no_space,
            d15_device_vanishes,
            n1_delay,
            p1_crash,
            p2_crash_at_fault_point,
            p3_power_loss,
            p4_power_loss_of_all,
            p5_pause,
            p6_crash_in_recovery,
            p16_no_memory};
  }
  // And those that destroy data which has no second copy: each asks SimDisk's may_spoil first.
  static constexpr FaultProfile destructive() {
    using enum FaultKind;
    return survivable()
        .with(d6_bit_rot)
        .with(d10_misdirected_write)
        .with(d11_misdirected_read)
        .with(d12_lost_write)
        .with(d13_stale_read)
        .with(d16_flush_lies);
  }

 private:
  static constexpr std::uint64_t bit(FaultKind kind) { return std::uint64_t{1} << index_of(kind); }
  std::uint64_t bits_ = 0;
};

struct Swarm {
  // Probability per opportunity; what an opportunity is, is said where it is drawn.
  std::array<double, kFaultKinds> rates{};
  // Whether a completion resumes its waiter at once or through the run queue; both are legal.
  bool inline_resumption = false;
  // What a coroutine's turn costs at most, beside a little that it always costs; 0 in half of the
  // seeds.
  Duration turn_cost_max;

  double rate(FaultKind kind) const { return rates[index_of(kind)]; }
  void set_rate(FaultKind kind, double rate) { rates[index_of(kind)] = rate; }
  // For the option hash of a failure line.
  std::uint64_t hash() const;
};

// The swarm of a seed. With an empty profile the world is kind, but order is still drawn.
Swarm draw_swarm(Rng& rng, const FaultProfile& profile);

}  // namespace sarsen::sim
