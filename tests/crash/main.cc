// sarsen_crash_explorer: opens the store on what power loss could have left. hack/crash builds and
// calls it.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "tests/crash/campaign.h"

namespace {

using namespace sarsen::crash;

int replay(const ExplorerOptions& options, const std::string& text) {
  Explorer explorer(
      options, [](const std::string&) {},
      [&options](const std::string& state, const std::string& what) {
        std::printf("%s: %s\n", command_of(options, state).c_str(), what.c_str());
      });
  if (!explorer.replay(text)) {
    std::fprintf(stderr, "crash: '%s' is no state of this build and seed\n", text.c_str());
    return 2;
  }
  const bool failed = explorer.counts().violations != 0;
  std::printf("%d passed, %d failed\n", failed ? 0 : 1, failed ? 1 : 0);
  return failed ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  CampaignOptions options;
  std::string replayed;
  bool expect_failure = false;
  CLI::App app{"Opens the store on every image that power loss could have left."};
  app.add_option("--length", options.length,
                 "letters per sequence: all sequences up to 2; of 3 and more a sample")
      ->capture_default_str();
  app.add_option("--minutes", options.minutes, "how long longer sequences are sampled")
      ->capture_default_str();
  app.add_option("--seed", options.explorer.seed, "draws the order of events and the samples")
      ->capture_default_str();
  app.add_option("--subset-sectors", options.explorer.states.subset_sectors_max,
                 "pending sectors of which every subset is tried")
      ->check(CLI::Range(0, 16))
      ->capture_default_str();
  app.add_option("--random-states", options.explorer.states.random_states,
                 "random subsets per point, and as many with garbage")
      ->capture_default_str();
  app.add_option("--points", options.explorer.points_max, "points per sequence")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--deep-percent", options.explorer.deep_percent,
                 "of the images, used on after recovery")
      ->capture_default_str();
  app.add_option("--again-percent", options.explorer.again_percent,
                 "of the images, crashed again during recovery")
      ->capture_default_str();
  app.add_option("--fail-stride", options.fail_stride, "every how many I/Os one fails")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--processes", options.processes, "at once")->capture_default_str();
  app.add_option("--planted", options.explorer.planted, "the planted bug to switch on");
  app.add_flag("--expect-failure", expect_failure,
               "pass only if a violation was found (for planted bugs)");
  app.add_option("--replay", replayed, "one state, as a failure printed it");
  CLI11_PARSE(app, argc, argv);
  if (!replayed.empty()) return replay(options.explorer, replayed);

  options.stop_at_first = !options.explorer.planted.empty();
  const ExplorerCounts counts = run_campaign(options);
  const bool found = counts.violations != 0;
  if (expect_failure) {
    std::printf("%d passed, %d failed\n", found ? 1 : 0, found ? 0 : 1);
    return found ? 0 : 1;
  }
  std::printf("%lu passed, %lu failed\n",
              counts.states - std::min(counts.states, counts.violations), counts.violations);
  return found ? 1 : 0;
}
