#include "tests/sim/runner.h"

#include <algorithm>
#include <sstream>

#include "tests/sim/sim_disk.h"

namespace sarsen::sim {

SeedReport run_seed(const WorkloadEntry& workload, const SeedOptions& options, Watch watch) {
  Simulator simulator({.seed = options.seed,
                       .profile = workload.profile,
                       .planted = options.planted,
                       .trace_file = options.trace_file});
  watch(simulator);
  const std::unique_ptr<Workload> running = workload.make({simulator, options.operations});
  const BootTime began = simulator.now();
  running->run();

  SeedReport report;
  report.seed = options.seed;
  if (simulator.failure()) {
    report.failure = simulator.failure()->what;
    report.failed_at_event = simulator.failure()->event;
  }
  report.option_hash = simulator.swarm().hash();
  report.trace_hash = simulator.trace_hash();
  report.events = simulator.events_run();
  report.operations = running->operations_done();
  for (const auto& node : simulator.nodes()) report.crashes += node->crashes();
  report.planted_uses = simulator.planted_uses();
  report.virtual_ns = (simulator.now() - began).value;
  report.faults = simulator.fault_counts();
  report.probes = simulator.probes();
  for (const auto& disk : simulator.disks()) {
    if (disk->stray_blocking_io() != 0) {
      report.probes["sim.blocking_io_outside_a_job"] += disk->stray_blocking_io();
    }
  }
  return report;
}

SeedReport run_seed_twice(const WorkloadEntry& workload, const SeedOptions& options, Watch watch) {
  SeedReport first = run_seed(workload, options, watch);
  const SeedReport second = run_seed(workload, options, watch);
  if (first.passed() && (first.trace_hash != second.trace_hash || first.events != second.events)) {
    first.failure = "the same seed ran differently: " + std::to_string(first.events) + " and " +
                    std::to_string(second.events) + " events (compare two runs with --trace)";
    first.failed_at_event = std::min(first.events, second.events);
  }
  return first;
}

std::string encode(const SeedReport& report) {
  std::ostringstream out;
  out << report.seed << ' ' << report.failed_at_event << ' ' << report.option_hash << ' '
      << report.trace_hash << ' ' << report.events << ' ' << report.operations << ' '
      << report.crashes << ' ' << report.planted_uses << ' ' << report.virtual_ns;
  for (const std::uint64_t count : report.faults) out << ' ' << count;
  out << ' ' << report.probes.size();
  for (const auto& [name, count] : report.probes) out << ' ' << name << ' ' << count;
  std::string failure = report.failure;
  std::replace(failure.begin(), failure.end(), '\n', ' ');
  out << ' ' << failure;
  return out.str();
}

SeedReport decode_report(const std::string& line) {
  std::istringstream in(line);
  SeedReport report;
  in >> report.seed >> report.failed_at_event >> report.option_hash >> report.trace_hash >>
      report.events >> report.operations >> report.crashes >> report.planted_uses >>
      report.virtual_ns;
  for (std::uint64_t& count : report.faults) in >> count;
  std::size_t probes = 0;
  in >> probes;
  for (std::size_t i = 0; i < probes; ++i) {
    std::string name;
    in >> name >> report.probes[name];
  }
  in.get();
  std::getline(in, report.failure);
  return report;
}

}  // namespace sarsen::sim
