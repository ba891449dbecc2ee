// Campaign: many seeds, in a few processes at once, and the table at the end. A seed that crashes
// its process costs that seed; the others go on.
#pragma once

#include <cstdint>
#include <string>

#include "tests/sim/runner.h"

namespace sarsen::sim {

struct CampaignOptions {
  std::uint64_t first_seed = 1;
  std::uint64_t seeds = 100;
  std::uint64_t operations = 5000;
  std::uint64_t double_run_percent = 1;
  unsigned processes = 2;
  unsigned seed_seconds_max = 120;
  bool stop_at_first_failure = false;
  bool in_this_process = false;  // for a debugger
  bool quiet = false;
  std::string planted = {};
  std::string commit = "unknown";
  std::string trace_path = {};  // with one seed: every event as a line
};

struct CampaignTotals {
  std::uint64_t passed = 0;
  std::uint64_t failed = 0;
  std::uint64_t double_runs = 0;
  std::uint64_t operations = 0;
  std::uint64_t events = 0;
  std::uint64_t crashes = 0;
  std::uint64_t planted_uses = 0;
  std::int64_t virtual_ns = 0;
  double seconds = 0;
  FaultCounts faults{};
  std::map<std::string, std::uint64_t, std::less<>> probes;

  void add(const SeedReport& report);
};

// Prints a line per failure as it happens, progress to stderr, and returns the sums.
CampaignTotals run_campaign(const WorkloadEntry& workload, const CampaignOptions& options);

// Fault kinds and probes with counts, operations, crashes, times.
void print_totals(const WorkloadEntry& workload, const CampaignTotals& totals);
// Kinds of the workload's profile that fired less often than that: nobody has shown that the system
// survives them. Prints a line for each and returns how many they are.
std::uint64_t print_rare_faults(const WorkloadEntry& workload, const CampaignTotals& totals,
                                std::uint64_t count_min);

}  // namespace sarsen::sim
