#include "dataplane/blockd/blockd_options.h"

#include <vector>

#include <gtest/gtest.h>

namespace sarsen::blockd {
namespace {

Parsed parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "sarsen-blockd");
  return parse_arguments(static_cast<int>(arguments.size()), arguments.data());
}

// Plain text on a network is a decision, not an oversight: of what is served, and of the mon.
TEST(BlockdOptions, tcp_needs_insecure) {
  EXPECT_EQ(parse({"--mon", "tcp:10.0.0.1:7400"}).exit_status, 2);
  EXPECT_EQ(parse({"--nbd-listen", "tcp:10.0.0.7:10809"}).exit_status, 2);
  EXPECT_FALSE(parse({"--mon", "tcp:10.0.0.1:7400", "--insecure"}).exit_status);
}

TEST(BlockdOptions, threads_and_memory_reach_the_runner) {
  const auto parsed = parse({"--memory", "192M", "--spin-us", "50", "--scheduling", "rr",
                             "--realtime-priority", "7", "--numa-node", "0"});
  ASSERT_FALSE(parsed.exit_status);
  const ShardRunnerOptions runner = parsed.options.runner();
  EXPECT_EQ(runner.buffers.bytes, 192 * kMiB);
  EXPECT_EQ(runner.buffers.numa_node, 0U);
  EXPECT_EQ(runner.reactor.spin_window, microseconds(50));
  EXPECT_EQ(runner.reactor.thread.scheduling, SchedulingPolicy::round_robin);
  EXPECT_EQ(runner.reactor.thread.realtime_priority, 7);
  EXPECT_EQ(parse({"--memory", "1M"}).exit_status, 2);
  EXPECT_EQ(parse({}).options.runner().buffers.bytes, 256 * kMiB);
}

}  // namespace
}  // namespace sarsen::blockd
