// Runs one seed of one workload, twice when asked, and reports.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>

#include "tests/sim/workload.h"

namespace sarsen::sim {

struct SeedOptions {
  std::uint64_t seed = 1;
  std::uint64_t operations = 5000;
  std::string planted = {};
  std::FILE* trace_file = nullptr;
};

struct SeedReport {
  std::uint64_t seed = 0;
  std::string failure;  // empty when the seed passed
  std::uint64_t failed_at_event = 0;
  std::uint64_t option_hash = 0;
  std::uint64_t trace_hash = 0;
  std::uint64_t events = 0;
  std::uint64_t operations = 0;
  std::uint64_t crashes = 0;
  std::uint64_t planted_uses = 0;
  std::int64_t virtual_ns = 0;
  FaultCounts faults{};
  std::map<std::string, std::uint64_t, std::less<>> probes;

  bool passed() const { return failure.empty(); }
};

// Called once the simulator exists, so that a signal handler can say where it was.
using Watch = void (*)(const Simulator& simulator);

SeedReport run_seed(const WorkloadEntry& workload, const SeedOptions& options, Watch watch);
// Runs it twice; different traces are a failure.
SeedReport run_seed_twice(const WorkloadEntry& workload, const SeedOptions& options, Watch watch);

// One line, and back; for a pipe between processes.
std::string encode(const SeedReport& report);
SeedReport decode_report(const std::string& line);

}  // namespace sarsen::sim
