// sarsen_sim_run: many seeds of a workload in the simulator. hack/sim builds and calls it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "tests/sim/campaign.h"
#include "tests/sim/workloads/image.h"
#include "tests/sim/workloads/register_disk.h"
#include "tests/sim/workloads/store.h"

namespace {

using namespace sarsen::sim;

// A workload is added here and nowhere else.
const std::array kWorkloads = {
    WorkloadEntry{"register_disk", "the simulated device keeps the contract of Disk, and no more",
                  FaultProfile::destructive().without(FaultKind::n1_delay), make_register_disk},
    WorkloadEntry{"store", "a store keeps what it acknowledged, whatever one device does to it",
                  store_profile(), make_store},
    WorkloadEntry{"image",
                  "an image is a block device that loses nothing and obeys one attachment set",
                  image_profile(), make_image},
};

int list_workloads() {
  for (const WorkloadEntry& workload : kWorkloads) {
    std::printf("%-16s %s\n", std::string(workload.name).c_str(),
                std::string(workload.proves).c_str());
  }
  return 0;
}

struct Regression {
  std::string workload;
  std::uint64_t seed = 0;
  std::uint64_t operations = 0;
};

// Lines of WORKLOAD SEED OPERATIONS; what follows a # is for people. Nothing when it cannot be
// read.
std::optional<std::vector<Regression>> read_regressions(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::vector<Regression> found;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    Regression regression;
    if (!(words >> regression.workload)) continue;
    if (!(words >> regression.seed >> regression.operations)) return std::nullopt;
    found.push_back(std::move(regression));
  }
  return found;
}

// Which workloads a run is about: the one named, or all.
std::vector<WorkloadEntry> chosen(const std::string& name) {
  std::vector<WorkloadEntry> found;
  for (const WorkloadEntry& workload : kWorkloads) {
    if (name == "all" || name == workload.name) found.push_back(workload);
  }
  return found;
}

int replay(const std::string& path, CampaignOptions options) {
  const auto regressions = read_regressions(path);
  if (!regressions) {
    std::fprintf(stderr, "sim: %s is not a list of WORKLOAD SEED OPERATIONS\n", path.c_str());
    return 2;
  }
  std::uint64_t passed = 0;
  std::uint64_t failed = 0;
  options.seeds = 1;
  options.double_run_percent = 100;
  for (const Regression& regression : *regressions) {
    options.first_seed = regression.seed;
    options.operations = regression.operations;
    for (const WorkloadEntry& workload : chosen(regression.workload)) {
      const CampaignTotals totals = run_campaign(workload, options);
      passed += totals.passed;
      failed += totals.failed;
    }
  }
  // A workload that was renamed would be skipped in silence.
  failed += regressions->size() - std::min<std::uint64_t>(regressions->size(), passed + failed);
  std::printf("%lu passed, %lu failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CampaignOptions options;
  std::string workload_name = "all";
  std::string regressions;
  bool list = false;
  bool expect_failure = false;
  std::uint64_t faults_min = 0;
  CLI::App app{"Runs seeds of a workload in the deterministic simulator."};
  app.add_option("--first-seed", options.first_seed, "the first seed")->capture_default_str();
  app.add_option("--seeds", options.seeds, "how many")->capture_default_str();
  app.add_option("--ops", options.operations, "operations per seed")->capture_default_str();
  app.add_option("--workload", workload_name, "one of --list, or all")->capture_default_str();
  app.add_option("--planted", options.planted, "the planted bug to switch on");
  app.add_option("--double-run-percent", options.double_run_percent,
                 "of the seeds, run twice and compared")
      ->capture_default_str();
  app.add_option("--processes", options.processes, "at once")->capture_default_str();
  app.add_option("--seed-seconds", options.seed_seconds_max, "real time that a seed may take")
      ->capture_default_str();
  app.add_option("--trace", options.trace_path, "with one seed: a file for every event");
  app.add_option("--commit", options.commit, "for the line that repeats a failure");
  app.add_flag("--stop-at-first-failure", options.stop_at_first_failure);
  app.add_flag("--expect-failure", expect_failure,
               "stop at the first failure, and pass only if there was one (for planted bugs)");
  app.add_option("--faults-min", faults_min, "fail unless each fault kind fired so often")
      ->capture_default_str();
  app.add_option("--regressions", regressions, "replay a list of seeds that failed once");
  app.add_flag("--here", options.in_this_process, "run in this process, for a debugger");
  app.add_flag("--quiet", options.quiet, "no progress");
  app.add_flag("--list", list, "name the workloads");
  CLI11_PARSE(app, argc, argv);
  if (list) return list_workloads();
  if (!regressions.empty()) return replay(regressions, options);
  options.stop_at_first_failure |= expect_failure;

  const std::vector<WorkloadEntry> workloads = chosen(workload_name);
  if (workloads.empty()) {
    std::fprintf(stderr, "sim: no workload '%s'; --list names them\n", workload_name.c_str());
    return 2;
  }
  std::uint64_t passed = 0;
  std::uint64_t failed = 0;
  for (const WorkloadEntry& workload : workloads) {
    std::printf("%s: %s\n", std::string(workload.name).c_str(),
                std::string(workload.proves).c_str());
    std::fflush(stdout);
    const CampaignTotals totals = run_campaign(workload, options);
    print_totals(workload, totals);
    if (!options.planted.empty() && totals.planted_uses == 0 && totals.failed == 0) {
      std::printf("  no code that ran asks for the planted bug %s\n", options.planted.c_str());
    }
    passed += totals.passed;
    failed += totals.failed + print_rare_faults(workload, totals, faults_min);
  }
  if (expect_failure) {
    // The bug was noticed, or no judge bites.
    std::printf("%s %lu seeds\n", failed != 0 ? "noticed after" : "not noticed in",
                passed + failed);
    passed = failed != 0 ? 1 : 0;
    failed = 1 - passed;
  }
  std::printf("%lu passed, %lu failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}
