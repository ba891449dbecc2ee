// A failed seed costs only itself, and leaves the line that repeats it.
#include "tests/sim/campaign.h"

#include <gtest/gtest.h>

#include "dataplane/base/assert.h"
#include "tests/sim/sim_node.h"

namespace sarsen::sim {
namespace {

// Seed 3 breaks a promise, seed 5 asserts, seed 7 never ends.
class Troubled final : public Workload {
 public:
  explicit Troubled(WorkloadContext context) : simulator_(context.simulator) {}
  void run() override {
    simulator_.call_after(seconds(1), [] {});
    while (simulator_.step()) {
    }
    if (simulator_.seed() == 3) simulator_.fail("a promise");
    SARSEN_ASSERT(simulator_.seed() != 5, "I-TEST-1");
    volatile bool forever = simulator_.seed() == 7;
    while (forever) {
    }
  }
  std::uint64_t operations_done() const override { return 1; }

 private:
  Simulator& simulator_;
};

std::unique_ptr<Workload> make_troubled(WorkloadContext context) {
  return std::make_unique<Troubled>(context);
}

constexpr WorkloadEntry kTroubled{"troubled", "", FaultProfile::none(), make_troubled};

CampaignOptions options_of(std::uint64_t first, std::uint64_t seeds) {
  CampaignOptions options;
  options.first_seed = first;
  options.seeds = seeds;
  options.operations = 10;
  options.quiet = true;
  options.commit = "abc";
  options.seed_seconds_max = 1;
  options.double_run_percent = 100;
  return options;
}

// Without the line nobody can repeat the failure; without the rest of the seeds it hides others.
TEST(Campaign, goes_on_after_seeds_that_fail_assert_and_hang) {
  testing::internal::CaptureStdout();
  const CampaignTotals totals = run_campaign(kTroubled, options_of(1, 40));
  const std::string output = testing::internal::GetCapturedStdout();
  EXPECT_EQ(totals.passed, 37u);
  EXPECT_EQ(totals.failed, 3u);
  for (const char* line :
       {"hack/sim --first-seed 3 --seeds 1 --ops 10 --workload troubled  # commit abc, options ",
        "event 1: a promise\n",
        "hack/sim --first-seed 5 --seeds 1 --ops 10 --workload troubled  # commit abc, event 1: "
        "ended by signal 6",
        "hack/sim --first-seed 7 --seeds 1 --ops 10 --workload troubled  # commit abc, event 1: "
        "takes too long"}) {
    EXPECT_NE(output.find(line), std::string::npos) << line << "\nnot in\n" << output;
  }
}

TEST(Campaign, stops_at_the_first_failure_when_asked) {
  CampaignOptions options = options_of(1, 1000);
  options.stop_at_first_failure = true;
  testing::internal::CaptureStdout();
  const CampaignTotals totals = run_campaign(kTroubled, options);
  (void)testing::internal::GetCapturedStdout();
  EXPECT_EQ(totals.failed, 1u);
  EXPECT_LT(totals.passed, 1000u - 3u);
}

// Differs from itself, as code that looks at addresses or at the real clock does.
class Forgetful final : public Workload {
 public:
  explicit Forgetful(WorkloadContext context) : simulator_(context.simulator) {}
  void run() override {
    static int runs = 0;
    simulator_.call_after(seconds(++runs), [] {});
    simulator_.step();
  }
  std::uint64_t operations_done() const override { return 1; }

 private:
  Simulator& simulator_;
};

TEST(Campaign, a_seed_that_runs_differently_the_second_time_fails) {
  static constexpr WorkloadEntry kForgetful{
      "forgetful", "", FaultProfile::none(),
      [](WorkloadContext context) -> std::unique_ptr<Workload> {
        return std::make_unique<Forgetful>(context);
      }};
  const auto watch = [](const Simulator&) {};
  const SeedReport report = run_seed_twice(kForgetful, {.seed = 1}, watch);
  EXPECT_NE(report.failure.find("ran differently"), std::string::npos);
}

}  // namespace
}  // namespace sarsen::sim
