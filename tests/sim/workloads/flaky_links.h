// FlakyLinks: a network with delays (N1), partitions between two nodes for a while (N7),
// connections that break in the middle of a frame (N8), and bytes that change on the way (N10).
#pragma once

#include <cmath>
#include <map>
#include <utility>

#include "tests/sim/sim_network.h"
#include "tests/sim/simulator.h"

namespace sarsen::sim {

class FlakyLinks final : public LinkPolicy {
 public:
  explicit FlakyLinks(Simulator& simulator) : simulator_(simulator) {}

  SegmentFate on_segment(Place from, Place to, std::uint64_t bytes, Rng& rng) override {
    const double mean = from.node == to.node ? 5'000 : 30'000;
    double delay = mean - mean * std::log(1.0 - rng.unit()) + static_cast<double>(bytes) * 0.1;
    if (happens(FaultKind::n1_delay, rng)) delay *= static_cast<double>(rng.between(10, 10'000));
    SegmentFate fate{.delay = Duration(static_cast<std::int64_t>(delay))};
    if (from.node == to.node) return fate;
    BootTime& heals = heals_[std::minmax(from.node, to.node)];
    if (happens(FaultKind::n7_partition, rng)) {
      heals = simulator_.now() + milliseconds(static_cast<std::int64_t>(rng.between(1, 3000)));
    }
    if (heals > simulator_.now()) fate.delay = (heals + fate.delay) - simulator_.now();
    fate.reset = happens(FaultKind::n8_reset_mid_frame, rng);
    fate.flip_byte = happens(FaultKind::n10_byte_flip, rng);
    return fate;
  }

 private:
  bool happens(FaultKind kind, Rng& rng) {
    if (!simulator_.roll(kind, rng)) return false;
    simulator_.count(kind);
    return true;
  }

  Simulator& simulator_;
  std::map<std::pair<std::uint16_t, std::uint16_t>, BootTime> heals_;
};

}  // namespace sarsen::sim
