#include "dataplane/runtime/uring/shard_runner.h"

#include <cstdlib>
#include <thread>

#include "dataplane/runtime/scope.h"
#include "dataplane/runtime/uring/cross_shard.h"
#include "dataplane/runtime/uring/thread_pool.h"
#include "dataplane/runtime/yield.h"
#include "tests/unit/runtime/uring/uring_testing.h"

namespace sarsen {
namespace {

ShardRunnerOptions light(std::uint32_t shards) {
  ShardRunnerOptions options;
  options.shard_count = shards;
  options.buffers.bytes = 64 * kKiB;
  options.reactor.registered_files = 8;
  options.blocking_threads = 1;
  return options;
}

// A call to another shard and back: the smallest use of CrossShard.
class Ping final : public ShardMessage {
 public:
  Ping(Env& home, CrossShard& away, ShardId target, int value)
      : home_(home), away_(away), target_(target), value_(value) {}

  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> handle) {
    waiter_ = handle;
    post_or_retry(home_.cross_shard, target_);
  }
  int await_resume() const { return value_; }

  void run() override {
    if (std::exchange(answered_, true)) {
      home_.executor.schedule(waiter_);
    } else {
      value_ = -value_;
      post_or_retry(away_, home_.shard);
    }
  }

 private:
  // Tests never fill a mailbox with these.
  void post_or_retry(CrossShard& from, ShardId to) { ASSERT_TRUE(from.post(to, *this)); }

  Env& home_;
  CrossShard& away_;
  ShardId target_;
  int value_;
  bool answered_ = false;
  std::coroutine_handle<> waiter_;
};

// Where shards of one test find each other.
struct Meeting {
  std::vector<std::atomic<CrossShard*>> shards;
  std::atomic<int> result{0};
  explicit Meeting(std::size_t count) : shards(count) {}
};

Task<void> ping_neighbour(ShardContext context, Meeting& meeting, int rounds) {
  Env& env = context.env;
  const auto count = env.cross_shard.shard_count();
  meeting.shards[env.shard.value].store(&env.cross_shard);
  const ShardId neighbour((env.shard.value + 1) % count);
  while (meeting.shards[neighbour.value].load() == nullptr) co_await Yield(env.executor);
  for (int i = 1; i <= rounds; ++i) {
    const int answer = co_await Ping(env, *meeting.shards[neighbour.value].load(), neighbour, i);
    if (answer != -i) meeting.result.store(-1);
  }
  const int sum = co_await env.blocking.run([&] { return meeting.result.load() + 1; });
  if (sum <= 0) meeting.result.store(-1);
}

// Case T22: a shutdown with messages, jobs and wake-ups in flight between threads is where
// lifetimes break.
TEST(ShardRunner, starts_and_stops_hundreds_of_times_with_messages_and_jobs_under_way) {
  const char* const campaign = std::getenv("SARSEN_START_STOP_ROUNDS");
  const int rounds = campaign == nullptr ? 200 : std::atoi(campaign);
  for (int round = 0; round < rounds; ++round) {
    Meeting meeting(3);
    auto runner = ShardRunner::start(
        light(3), [&](ShardContext context) { return ping_neighbour(context, meeting, 3); });
    ASSERT_TRUE(runner) << runner.error().message();
    (*runner)->join();
    ASSERT_GE(meeting.result.load(), 0);
  }
}

// Wake-ups are sent only to shards that sleep; a lost one would leave a round trip hanging.
TEST(ShardRunner, no_wake_up_is_lost_in_thousands_of_round_trips) {
  Meeting meeting(2);
  auto runner = ShardRunner::start(
      light(2), [&](ShardContext context) { return ping_neighbour(context, meeting, 5000); });
  ASSERT_TRUE(runner) << runner.error().message();
  (*runner)->join();
  EXPECT_GE(meeting.result.load(), 0);
}

// Messages of one pair are numbered; each checks that it is the next.
struct Numbered final : ShardMessage {
  void run() override {
    if (*expected != number) *ordered = false;
    ++*expected;
    arrived->fetch_add(1);
  }
  std::uint64_t number = 0;
  std::uint64_t* expected = nullptr;
  bool* ordered = nullptr;
  std::atomic<std::uint64_t>* arrived = nullptr;
};

struct Flood {
  static constexpr std::uint64_t kCount = 2000;
  std::vector<Numbered> messages{kCount};
  std::uint64_t expected = 0;
  bool ordered = true;
  std::atomic<std::uint64_t> arrived{0};
  std::uint64_t refused = 0;
};

Task<void> flood_the_other(ShardContext context, Flood& flood) {
  if (context.env.shard.value != 0) co_return;
  for (std::uint64_t i = 0; i < Flood::kCount; ++i) {
    Numbered& message = flood.messages[i];
    message.number = i;
    message.expected = &flood.expected;
    message.ordered = &flood.ordered;
    message.arrived = &flood.arrived;
    while (true) {
      const auto posted = context.env.cross_shard.post(ShardId(1), message);
      if (posted) break;
      EXPECT_TRUE(is(posted.error(), RuntimeError::overloaded));
      ++flood.refused;
      co_await Yield(context.env.executor);
    }
  }
  while (flood.arrived.load() < Flood::kCount) co_await Yield(context.env.executor);
}

// A shard that cannot keep up pushes back instead of growing a queue; the order holds all the same.
TEST(ShardRunner, a_full_mailbox_answers_overloaded_and_loses_nothing) {
  ShardRunnerOptions options = light(2);
  options.mailbox_capacity = 4;
  Flood flood;
  auto runner = ShardRunner::start(
      options, [&](ShardContext context) { return flood_the_other(context, flood); });
  ASSERT_TRUE(runner) << runner.error().message();
  (*runner)->join();
  EXPECT_TRUE(flood.ordered);
  EXPECT_EQ(flood.expected, Flood::kCount);
  EXPECT_GT(flood.refused, 0u);
}

// The bound and the order of one mailbox, without threads.
TEST(Mailbox, holds_its_capacity_and_gives_messages_in_order) {
  struct Nothing final : ShardMessage {
    void run() override {}
  };
  Mailbox mailbox(2);
  Nothing messages[3];
  for (int round = 0; round < 5; ++round) {
    EXPECT_TRUE(mailbox.push(messages[0]));
    EXPECT_TRUE(mailbox.push(messages[1]));
    EXPECT_FALSE(mailbox.push(messages[2]));
    EXPECT_EQ(mailbox.pop(), &messages[0]);
    EXPECT_EQ(mailbox.pop(), &messages[1]);
    EXPECT_EQ(mailbox.pop(), nullptr);
    EXPECT_TRUE(mailbox.empty());
  }
}

Task<void> wait_for_stop(ShardContext context, std::atomic<int>& stopped) {
  co_await context.stop_requested();
  co_await context.stop_requested();  // later waits pass at once
  stopped.fetch_add(1);
}

// SIGTERM reaches every shard, asleep or not.
TEST(ShardRunner, a_stop_request_reaches_every_shard) {
  std::atomic<int> stopped{0};
  auto runner = ShardRunner::start(
      light(3), [&](ShardContext context) { return wait_for_stop(context, stopped); });
  ASSERT_TRUE(runner) << runner.error().message();
  (*runner)->request_stop();
  (*runner)->join();
  EXPECT_EQ(stopped.load(), 3);
}

// A half-started process would serve half of its lanes.
TEST(ShardRunner, when_one_shard_cannot_start_no_main_runs) {
  ShardRunnerOptions options = light(2);
  options.cpus = {0, 1023};
  std::atomic<int> stopped{0};
  const auto runner = ShardRunner::start(
      options, [&](ShardContext context) { return wait_for_stop(context, stopped); });
  ASSERT_FALSE(runner);
  EXPECT_NE(runner.error().message().find("CPU 1023"), std::string::npos)
      << runner.error().message();
  EXPECT_EQ(stopped.load(), 0);
  options.cpus = {0};
  EXPECT_FALSE(ShardRunner::start(options, ShardRunner::Main()));
}

Task<void> run_jobs(ShardContext context, std::vector<int>& order, std::thread::id& ran_on) {
  struct One {
    static Task<void> run(BlockingPool& pool, std::vector<int>& into, int i) {
      const int value = co_await pool.run([&into, i] {
        into.push_back(i);
        return i * 2;
      });
      EXPECT_EQ(value, i * 2);
    }
  };
  Scope scope(context.env.executor);
  for (int i = 0; i < 500; ++i) scope.spawn(One::run(context.env.blocking, order, i));
  co_await scope.join();
  ran_on = co_await context.env.blocking.run([] { return std::this_thread::get_id(); });
  EXPECT_NE(ran_on, std::this_thread::get_id());
}

// RocksDB's metadata thread relies on the order; the shard on every answer.
TEST(ThreadPool, one_thread_runs_jobs_in_order_and_answers_all) {
  std::vector<int> order;
  std::thread::id ran_on;
  auto runner = ShardRunner::start(
      light(1), [&](ShardContext context) { return run_jobs(context, order, ran_on); });
  ASSERT_TRUE(runner) << runner.error().message();
  (*runner)->join();
  ASSERT_EQ(order.size(), 500u);
  for (int i = 0; i < 500; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

// A library that blocks must not block the shard.
Task<void> job_that_needs_the_shard(ShardContext context, bool& done) {
  std::atomic<bool> shard_ran{false};
  struct Setter {
    static Task<void> run(Executor& executor, std::atomic<bool>& flag) {
      co_await Yield(executor);
      flag.store(true);
      flag.notify_all();
    }
  };
  Scope scope(context.env.executor);
  scope.spawn(Setter::run(context.env.executor, shard_ran));
  done = co_await context.env.blocking.run([&] {
    shard_ran.wait(false);
    return true;
  });
  co_await scope.join();
}

TEST(ThreadPool, the_shard_goes_on_while_a_job_blocks) {
  bool done = false;
  auto runner = ShardRunner::start(
      light(1), [&](ShardContext context) { return job_that_needs_the_shard(context, done); });
  ASSERT_TRUE(runner) << runner.error().message();
  (*runner)->join();
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace sarsen
