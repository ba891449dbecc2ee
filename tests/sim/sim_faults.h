// SimFaultPoints: FaultPoints of one shard. Asking is also a chance for the node to crash there
// (P2).
#pragma once

#include "tests/sim/sim_node.h"

namespace sarsen::sim {

class SimFaultPoints final : public FaultPoints {
 public:
  SimFaultPoints(Simulator& simulator, SimNode& node, Rng rng)
      : simulator_(simulator), node_(node), rng_(rng) {}

  bool fires(std::string_view name) override {
    if (!node_.doomed() && simulator_.roll(FaultKind::p2_crash_at_fault_point, rng_)) {
      simulator_.count(FaultKind::p2_crash_at_fault_point);
      node_.crash(rng_.chance(0.5) ? CrashKind::power_loss : CrashKind::process_kill);
    }
    return simulator_.fault_point_fires(name);
  }
  bool planted(std::string_view name) override { return simulator_.planted(name); }
  void probe(std::string_view name) override { simulator_.probe(name); }

 private:
  Simulator& simulator_;
  SimNode& node_;
  Rng rng_;
};

}  // namespace sarsen::sim
