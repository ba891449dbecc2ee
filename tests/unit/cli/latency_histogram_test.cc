#include "dataplane/cli/latency_histogram.h"

#include <gtest/gtest.h>

namespace sarsen {
namespace {

// A percentile that is off by more than its step would make two equal runs look different.
TEST(LatencyHistogram, percentiles_are_within_a_step_of_the_truth) {
  LatencyHistogram histogram;
  for (std::uint64_t i = 1; i <= 100'000; ++i) histogram.add(i * 1000);
  for (const double share : {0.01, 0.5, 0.99, 0.999}) {
    const double truth = share * 1e8;
    const auto found = static_cast<double>(histogram.percentile_ns(share));
    EXPECT_GE(found, truth * 0.999) << share;
    EXPECT_LE(found, truth * (1 + 1.0 / 32)) << share;
  }
  EXPECT_EQ(histogram.most_ns(), 100'000'000u);
  EXPECT_EQ(histogram.percentile_ns(1), 100'000'000u);
  EXPECT_EQ(histogram.mean_ns(), 50'000'500u);
}

// Every value has a place, also the largest and those that are told apart exactly.
TEST(LatencyHistogram, takes_every_value) {
  for (const std::uint64_t value :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{63}, std::uint64_t{64},
        std::uint64_t{127}, std::uint64_t{128}, ~std::uint64_t{0}}) {
    LatencyHistogram histogram;
    histogram.add(value);
    EXPECT_EQ(histogram.percentile_ns(0.5), value);
  }
  EXPECT_EQ(LatencyHistogram().percentile_ns(0.5), 0u);
}

}  // namespace
}  // namespace sarsen
