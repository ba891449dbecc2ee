// The simulator repeats, draws every order that the contracts leave open, and tears nodes down.
#include "tests/sim/simulator.h"

#include <array>
#include <set>

#include <gtest/gtest.h>

#include "dataplane/runtime/yield.h"
#include "tests/sim/nemesis.h"
#include "tests/sim/run_task.h"
#include "tests/sim/runner.h"
#include "tests/sim/sim_disk.h"
#include "tests/sim/sim_network.h"
#include "tests/sim/workloads/register_disk.h"

namespace sarsen::sim {
namespace {

void watch_nothing(const Simulator&) {}

SeedReport run_register_disk(std::uint64_t seed, std::string planted = {}) {
  static constexpr WorkloadEntry kEntry{"register_disk", "", FaultProfile::destructive(),
                                        make_register_disk};
  return run_seed(kEntry, {.seed = seed, .operations = 1500, .planted = std::move(planted)},
                  watch_nothing);
}

// A failure that cannot be repeated cannot be fixed.
TEST(SimulatorRepeats, the_same_seed_gives_the_same_trace_and_another_seed_another) {
  std::set<std::uint64_t> traces;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const SeedReport first = run_register_disk(seed);
    const SeedReport second = run_register_disk(seed);
    EXPECT_EQ(first.failure, "");
    EXPECT_EQ(first.trace_hash, second.trace_hash);
    EXPECT_EQ(first.events, second.events);
    EXPECT_EQ(first.faults, second.faults);
    traces.insert(first.trace_hash);
  }
  EXPECT_EQ(traces.size(), 10u);
}

// A judge counts only once it has caught something.
TEST(RegisterDisk, finds_the_bugs_that_are_planted_in_its_judge) {
  for (const char* planted :
       {"register_disk.every_write_is_durable", "register_disk.flush_covers_later_writes"}) {
    std::uint64_t seed = 1;
    while (seed <= 100 && run_register_disk(seed, planted).passed()) ++seed;
    EXPECT_LE(seed, 100u) << planted;
  }
}

// The parent of a campaign sums what its processes say.
TEST(SeedReport, survives_its_way_through_a_pipe) {
  SeedReport report = run_register_disk(4);
  report.failure = "two words\nand a line";
  const SeedReport decoded = decode_report(encode(report));
  EXPECT_EQ(decoded.failure, "two words and a line");
  EXPECT_EQ(decoded.trace_hash, report.trace_hash);
  EXPECT_EQ(decoded.faults, report.faults);
  EXPECT_EQ(decoded.probes, report.probes);
  EXPECT_EQ(decoded.events, report.events);
}

// ---------------------------------------------------------------------------------------- orders

Task<void> note(Executor& executor, std::string* order, char name) {
  co_await yield(executor);
  order->push_back(name);
}

// Code that relies on an order of ready coroutines must fail for some seed.
TEST(SimExecutor, resumes_ready_coroutines_in_every_order) {
  std::set<std::string> orders;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Simulator simulator({.seed = seed});
    SimNode& node = simulator.add_node({});
    node.start();
    std::string order;
    for (const char name : {'a', 'b', 'c'}) {
      node.scope().spawn(note(node.env().executor, &order, name));
    }
    simulator.run_until([&order] { return order.size() == 3; });
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 6u);
}

Task<void> read_twice(Disk& disk, std::array<int, 2>* places, int* next, int index) {
  std::vector<std::byte> block(kBlockBytes);
  (void)co_await disk.read(ByteOffset(index * kBlockBytes), block);
  (*places)[static_cast<std::size_t>(index)] = (*next)++;
}

// io_uring promises no order of completions either.
TEST(SimDiskOrder, completes_transfers_in_either_order_inline_and_queued) {
  std::set<int> firsts;
  std::set<bool> modes;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Simulator simulator({.seed = seed});
    modes.insert(simulator.swarm().inline_resumption);
    SimDisk& disk = simulator.add_disk({.size_bytes = kMiB});
    SimNode& node = simulator.add_node({.disks = {&disk}});
    node.start();
    std::array<int, 2> places{};
    int next = 0;
    for (const int index : {0, 1}) {
      node.scope().spawn(read_twice(node.disk(), &places, &next, index));
    }
    simulator.run_until([&next] { return next == 2; });
    firsts.insert(places[0]);
  }
  EXPECT_EQ(firsts.size(), 2u);
  EXPECT_EQ(modes.size(), 2u);
}

// ------------------------------------------------------------------------------------------ time

Task<bool> sleep_for(Clock& clock, Duration duration) {
  co_return co_await clock.sleep(duration);
}

// A lease of an hour is tested in a microsecond, and never ends early.
TEST(SimClock, jumps_to_the_deadline_and_never_wakes_before_it) {
  Simulator simulator({.seed = 1});
  SimNode& node = simulator.add_node({});
  node.start();
  const BootTime before = simulator.now();
  EXPECT_TRUE(*run_task(node, sleep_for(node.env().clock, seconds(1800))));
  EXPECT_GE((simulator.now() - before).value, seconds(1800).value);
  EXPECT_LT((simulator.now() - before).value, seconds(1801).value);
}

Task<bool> sleep_and_cancel(Env& env) {
  struct Canceller {
    static Task<void> run(Executor& executor, SleepOperation* sleep) {
      co_await yield(executor);
      sleep->cancel();
    }
  };
  SleepOperation sleep = env.clock.sleep(seconds(10));
  Scope scope(env.executor);
  scope.spawn(Canceller::run(env.executor, &sleep));
  const bool came = co_await sleep;
  co_await scope.join();
  co_return came;
}

TEST(SimClock, ends_a_cancelled_sleep_at_once) {
  Simulator simulator({.seed = 1});
  SimNode& node = simulator.add_node({});
  node.start();
  const BootTime before = simulator.now();
  EXPECT_FALSE(*run_task(node, sleep_and_cancel(node.env())));
  EXPECT_LT((simulator.now() - before).value, seconds(1).value);
}

// A process that was stopped for longer than its lease must notice when it runs again.
TEST(SimNode, runs_nothing_while_it_is_paused) {
  Simulator simulator({.seed = 1});
  SimNode& node = simulator.add_node({});
  node.start();
  const BootTime before = simulator.now();
  node.pause(seconds(5));
  EXPECT_TRUE(*run_task(node, sleep_for(node.env().clock, milliseconds(1))));
  EXPECT_GE((simulator.now() - before).value, seconds(5).value);
}

// ------------------------------------------------------------------------------------------ shards

struct Ping final : ShardMessage {
  explicit Ping(std::vector<int>* sink, int value) : seen(sink), number(value) {}
  void run() override { seen->push_back(number); }
  std::vector<int>* seen;
  int number;
};

// Session sequence numbers ride on this order.
TEST(SimCrossShard, keeps_the_order_of_a_pair_of_shards_and_its_bound) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Simulator simulator({.seed = seed});
    SimNode& node = simulator.add_node({.shards = 3});
    node.start();
    std::vector<int> seen;
    std::vector<std::unique_ptr<Ping>> pings;
    CrossShard& cross_shard = node.env(ShardId(0)).cross_shard;
    for (int i = 0; i < 1000; ++i) {
      pings.push_back(std::make_unique<Ping>(&seen, i));
      if (!cross_shard.post(ShardId(2), *pings.back())) {
        pings.pop_back();
        break;
      }
    }
    EXPECT_LT(pings.size(), 1000u);  // bounded
    simulator.run_until([&] { return seen.size() == pings.size(); });
    ASSERT_EQ(seen.size(), pings.size());
    EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  }
}

Task<int> answer(BlockingPool& pool, std::vector<int>* ran, int number) {
  co_return co_await pool.run([ran, number] {
    ran->push_back(number);
    return number * 2;
  });
}

TEST(SimBlockingPool, runs_jobs_in_submission_order_and_gives_their_results) {
  Simulator simulator({.seed = 5});
  SimNode& node = simulator.add_node({});
  node.start();
  std::vector<int> ran;
  for (int i = 0; i < 20; ++i) {
    node.scope().spawn([](BlockingPool& pool, std::vector<int>* order, int number) -> Task<void> {
      SARSEN_ASSERT(co_await answer(pool, order, number) == number * 2, "its own result");
    }(node.env().blocking, &ran, i));
  }
  simulator.run_until([&ran] { return ran.size() == 20; });
  EXPECT_TRUE(std::is_sorted(ran.begin(), ran.end()));
}

// --------------------------------------------------------------------------------------- crashes

// Everything a coroutine can wait for, and a buffer in hand, when the power goes.
Task<void> wait_for_everything(SimNode& node, int what, std::uint64_t* rounds) {
  Env& env = node.env();
  Buffer buffer = *env.buffers.allocate(kBlockBytes);
  while (true) {
    const ByteOffset offset(static_cast<std::uint64_t>(what) * kBlockBytes);
    if (what % 4 == 0) (void)co_await node.disk().write(offset, buffer.span());
    if (what % 4 == 1) (void)co_await env.clock.sleep(microseconds(30));
    if (what % 4 == 2) (void)co_await env.blocking.run([] { return 1; });
    if (what % 4 == 3) co_await yield(env.executor);
    if (what % 8 == 3) (void)co_await env.clock.sleep(microseconds(30));
    ++*rounds;
  }
}

// Every pending operation is withdrawn, every buffer comes back, nothing of the dead node runs.
TEST(SimNode, may_crash_between_any_two_events) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    Simulator simulator({.seed = seed});
    SimDisk& disk = simulator.add_disk({.size_bytes = kMiB});
    SimNode& node = simulator.add_node({.disks = {&disk}});
    std::uint64_t rounds = 0;
    for (std::uint64_t events = 0; events < 40; ++events) {
      node.start();
      for (int what = 0; what < 12; ++what) {
        node.scope().spawn(wait_for_everything(node, what, &rounds));
      }
      for (std::uint64_t i = 0; i < events; ++i) simulator.step();
      node.crash(events % 2 == 0 ? CrashKind::power_loss : CrashKind::process_kill);
      const std::uint64_t before = rounds;
      while (simulator.step()) {
      }
      ASSERT_EQ(rounds, before);
    }
  }
}

class Forever final : public Program {
 public:
  Forever(SimNode& node, std::uint64_t* rounds) : scope_(node.env().executor) {
    for (int what = 0; what < 4; ++what) scope_.spawn(wait_for_everything(node, what, rounds));
  }

 private:
  Scope scope_;
};

// The nemesis must bring back what it, or anything else, took down.
TEST(Nemesis, crashes_pauses_and_restarts_nodes) {
  Simulator simulator({.seed = 9});
  using enum FaultKind;
  for (const FaultKind kind : {p1_crash, p3_power_loss, p4_power_loss_of_all, p5_pause}) {
    simulator.set_rate(kind, 0.05);
  }
  simulator.set_rate(p6_crash_in_recovery, 0.5);
  SimDisk& disk = simulator.add_disk({.size_bytes = kMiB});
  SimNode& node = simulator.add_node({.disks = {&disk}});
  std::uint64_t rounds = 0;
  node.set_factory([&rounds](SimNode& n) { return std::make_unique<Forever>(n, &rounds); });
  node.start();
  Nemesis nemesis(simulator);
  nemesis.start();
  simulator.run_for(seconds(2));
  for (const FaultKind kind :
       {p1_crash, p3_power_loss, p4_power_loss_of_all, p5_pause, p6_crash_in_recovery}) {
    EXPECT_GT(simulator.fault_counts()[index_of(kind)], 0u) << name_of(kind);
  }
  nemesis.stop();
  EXPECT_TRUE(simulator.run_until([&nemesis] { return nemesis.quiet(); }, seconds(10)));
  const std::uint64_t crashes = node.crashes();
  const std::uint64_t before = rounds;
  simulator.run_for(seconds(1));
  EXPECT_EQ(node.crashes(), crashes);
  EXPECT_GT(rounds, before);
}

// Which points exist must not change which of them are armed.
TEST(SimFaultPoints, arm_a_quarter_of_the_points_by_seed_and_name) {
  int armed = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    Simulator simulator({.seed = seed});
    simulator.set_rate(FaultKind::p16_no_memory, 0.1);
    bool fired = false;
    for (int i = 0; i < 2000; ++i) fired = simulator.fault_point_fires("test.point") || fired;
    armed += fired ? 1 : 0;
  }
  EXPECT_GT(armed, 60);
  EXPECT_LT(armed, 140);
}

}  // namespace
}  // namespace sarsen::sim
