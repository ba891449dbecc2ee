// The one line that repeats a failed run, also when it ends in an assertion or a crash of ours.
//
// The only global state of the simulator: a signal handler has nowhere else to look. Used by
// main.cc.
#pragma once

#include <cstdint>
#include <string>

#include "tests/sim/simulator.h"

namespace sarsen::sim {

struct FailureLine {
  std::uint64_t seed = 0;
  std::uint64_t operations = 0;
  std::string workload;
  std::string planted;
  std::string commit;
};

// "hack/sim --first-seed 7 --seeds 1 --ops 5000 --workload register_disk  # commit ..., event ...:
// what"
std::string failure_line(const FailureLine& run, std::uint64_t option_hash, std::uint64_t event,
                         const std::string& what);

// From now on SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGALRM print the line of this run and
// end the process. SIGALRM comes when the seed takes more than `seconds_max` of real time.
void guard_seed(const FailureLine& run, unsigned seconds_max);
void guard_simulator(const Simulator& simulator);
void end_guard();

}  // namespace sarsen::sim
