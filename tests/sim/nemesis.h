// Nemesis: crashes, power losses and pauses of nodes, and their restarts. Rates come from the
// swarm; an opportunity is a tick, about once per NemesisOptions::tick of virtual time.
//
// Lifecycle  start() once; stop() ends new faults (down nodes still come back). Outlived by the
//            simulator's run.
#pragma once

#include <functional>
#include <vector>

#include "tests/sim/sim_node.h"

namespace sarsen::sim {

struct NemesisOptions {
  Duration tick = milliseconds(1);
  Duration down_max = milliseconds(20);
  Duration pause_max = milliseconds(200);
  // A crash in recovery (P6) comes this soon after a restart.
  Duration recovery_max = milliseconds(5);
  // Nodes that it may harm; all of them when empty.
  std::function<bool(const SimNode&)> may_strike = {};
};

class Nemesis {
 public:
  explicit Nemesis(Simulator& simulator, NemesisOptions options = {});
  Nemesis(const Nemesis&) = delete;
  Nemesis& operator=(const Nemesis&) = delete;

  void start();
  void stop() { stopped_ = true; }
  // All nodes are up.
  bool quiet() const;

 private:
  void tick();
  void strike(SimNode& node);
  void bring_back(SimNode& node);
  bool may_strike(const SimNode& node) const {
    return !options_.may_strike || options_.may_strike(node);
  }
  Duration up_to(Duration most);

  Simulator& simulator_;
  NemesisOptions options_;
  Rng rng_;
  std::vector<bool> coming_back_;
  bool stopped_ = false;
};

}  // namespace sarsen::sim
