#include "tests/sim/swarm.h"

#include <bit>
#include <cmath>

namespace sarsen::sim {
namespace {

struct Bounds {
  double low;
  double high;
};

// Rates are drawn log-uniformly between these, so that rare and frequent are equally likely.
Bounds bounds_of(FaultKind kind) {
  using enum FaultKind;
  switch (kind) {
    case d1_latency: return {1e-4, 1e-2};               // per I/O: a gray spell starts
    case d2_reorder: return {0.05, 1.0};                // per power loss, per write-back
    case d3_drop_unflushed: return {0.05, 0.9};         // per un-flushed write at power loss
    case d4_torn_write: return {0.05, 0.9};             // per write harmed at power loss
    case d5_garbage: return {0.01, 0.5};                // per torn sector
    case d6_bit_rot: return {1e-4, 1e-2};               // per read
    case d7_read_error: return {1e-4, 1e-2};            // per read
    case d8_write_error: return {2e-5, 1e-3};           // per write
    case d9_flush_error: return {1e-4, 1e-2};           // per flush
    case d10_misdirected_write: return {1e-4, 1e-2};    // per write
    case d11_misdirected_read: return {1e-4, 1e-2};     // per read
    case d12_lost_write: return {1e-4, 1e-2};           // per write
    case d13_stale_read: return {1e-4, 1e-2};           // per read
    case d14_no_space: return {1e-4, 1e-2};             // per write that grows
    case d15_device_vanishes: return {1e-5, 1e-3};      // per I/O
    case d16_flush_lies: return {1e-3, 1e-1};           // per flush
    case p1_crash: return {1e-3, 3e-2};                 // per tick of the nemesis
    case p2_crash_at_fault_point: return {1e-5, 1e-3};  // per question, and per blocking I/O
    case p3_power_loss: return {1e-3, 3e-2};            // per tick; a tenth of it per blocking I/O
    case p4_power_loss_of_all: return {1e-3, 3e-2};     // per tick
    case p5_pause: return {1e-3, 3e-2};                 // per tick
    case p6_crash_in_recovery: return {0.05, 0.9};      // per restart
    case p16_no_memory: return {1e-4, 1e-2};            // per allocation
    default: return {1e-4, 1e-2};
  }
}

}  // namespace

Swarm draw_swarm(Rng& rng, const FaultProfile& profile) {
  Swarm swarm;
  swarm.inline_resumption = rng.chance(0.5);
  swarm.turn_cost_max = nanoseconds(rng.chance(0.5) ? 0 : 2'000);
  for (std::size_t i = 0; i < kFaultKinds; ++i) {
    const auto kind = static_cast<FaultKind>(i);
    // Drawn whether allowed or not: widening a profile changes no other kind of the same seed.
    const bool on = rng.chance(0.5);
    const double position = rng.unit();
    const auto [low, high] = bounds_of(kind);
    if (on && profile.allows(kind)) swarm.rates[i] = low * std::pow(high / low, position);
  }
  return swarm;
}

std::uint64_t Swarm::hash() const {
  std::uint64_t hash = inline_resumption ? 1 : 2;
  const auto mix = [&hash](std::uint64_t word) {
    hash = (std::rotl(hash, 23) ^ word) * 0x9e3779b97f4a7c15u;
  };
  mix(static_cast<std::uint64_t>(turn_cost_max.value));
  for (const double rate : rates) mix(std::bit_cast<std::uint64_t>(rate));
  return hash;
}

}  // namespace sarsen::sim
