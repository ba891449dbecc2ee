#include "tests/sim/nemesis.h"

#include <algorithm>

namespace sarsen::sim {

using enum FaultKind;

Nemesis::Nemesis(Simulator& simulator, NemesisOptions options)
    : simulator_(simulator), options_(options), rng_(simulator.split_rng()) {}

void Nemesis::start() {
  coming_back_.assign(simulator_.nodes().size(), false);
  simulator_.call_after(up_to(options_.tick), [this] { tick(); });
}

Duration Nemesis::up_to(Duration most) {
  return Duration(static_cast<std::int64_t>(rng_.below(static_cast<std::uint64_t>(most.value))));
}

bool Nemesis::quiet() const {
  const auto& nodes = simulator_.nodes();
  return std::all_of(nodes.begin(), nodes.end(), [](const auto& node) { return node->up(); });
}

void Nemesis::tick() {
  if (!stopped_ && simulator_.roll(p4_power_loss_of_all, rng_)) {
    simulator_.count(p4_power_loss_of_all);
    for (const auto& node : simulator_.nodes()) {
      if (node->up() && may_strike(*node)) node->crash(CrashKind::power_loss);
    }
  }
  for (const auto& node : simulator_.nodes()) {
    if (node->up() && !node->doomed()) {
      if (!stopped_ && may_strike(*node)) strike(*node);
    } else if (!node->up() && !coming_back_[node->id()]) {
      // Whoever took it down, it comes back.
      coming_back_[node->id()] = true;
      simulator_.call_after(up_to(options_.down_max),
                            [this, crashed = node.get()] { bring_back(*crashed); });
    }
  }
  simulator_.call_after(up_to(Duration(2 * options_.tick.value)), [this] { tick(); });
}

void Nemesis::strike(SimNode& node) {
  if (simulator_.roll(p1_crash, rng_)) {
    simulator_.count(p1_crash);
    node.crash(CrashKind::process_kill);
  } else if (simulator_.roll(p3_power_loss, rng_)) {
    simulator_.count(p3_power_loss);
    node.crash(CrashKind::power_loss);
  } else if (simulator_.roll(p5_pause, rng_)) {
    simulator_.count(p5_pause);
    node.pause(up_to(options_.pause_max));
  }
}

void Nemesis::bring_back(SimNode& node) {
  coming_back_[node.id()] = false;
  node.start();
  if (stopped_ || !simulator_.roll(p6_crash_in_recovery, rng_)) return;
  const CrashKind kind = rng_.chance(0.5) ? CrashKind::power_loss : CrashKind::process_kill;
  simulator_.call_after(up_to(options_.recovery_max),
                        [this, &node, kind, incarnation = node.incarnation()] {
                          if (stopped_ || !may_strike(node) || !node.up() || node.doomed() ||
                              node.incarnation() != incarnation) {
                            return;
                          }
                          simulator_.count(p6_crash_in_recovery);
                          node.crash(kind);
                        });
}

}  // namespace sarsen::sim
