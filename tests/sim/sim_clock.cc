#include "tests/sim/sim_clock.h"

#include <algorithm>
#include <bit>

namespace sarsen::sim {

void SimClock::submit(SleepOperation& operation) {
  const Duration late(static_cast<std::int64_t>(rng_.below(50'000)));
  const Duration left(std::max<std::int64_t>(0, (operation.deadline() - now()).value));
  operation.scratch =
      simulator_.post(Duration(left.value + late.value), EventKind::timer, executor_.place(), *this,
                      std::bit_cast<std::uint64_t>(&operation));
}

void SimClock::withdraw(SleepOperation& operation, bool resume) {
  simulator_.cancel(operation.scratch);
  if (resume) executor_.schedule(operation.finish());
}

void SimClock::on_event(std::uint64_t argument) {
  executor_.deliver(std::bit_cast<SleepOperation*>(argument)->finish());
}

}  // namespace sarsen::sim
