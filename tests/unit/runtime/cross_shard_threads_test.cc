// Calls between shards that are threads, as in production; for ThreadSanitizer.
#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "dataplane/runtime/cross_shard_call.h"
#include "tests/unit/runtime/manual_env.h"

namespace sarsen {
namespace {

constexpr std::size_t kMailboxMax = 2;
constexpr std::uint32_t kCalls = 300;

class Threads;

class ThreadMailboxes final : public CrossShard {
 public:
  explicit ThreadMailboxes(Threads& threads) : threads_(threads) {}
  std::uint32_t shard_count() const override { return 2; }
  Result<void> post(ShardId target, ShardMessage& message) override;

 private:
  Threads& threads_;
};

// One shard on a thread of its own. Its clock runs as fast as somebody sleeps.
struct ThreadShard {
  ThreadShard(Threads& threads, std::uint32_t id)
      : clock(executor),
        random(id),
        buffers(kMiB),
        cross_shard(threads),
        blocking(executor),
        env{ShardId(id), executor, clock, random, network, buffers, cross_shard, blocking, faults} {
  }
  // Until `ended`: messages, coroutines, timers; waits on the condition when there is nothing.
  void run_until(const std::function<bool()>& ended) {
    while (true) {
      executor.run();
      if (ended()) return;
      ShardMessage* message = nullptr;
      {
        std::unique_lock lock(mutex);
        if (clock.sleeping() == 0) arrived.wait(lock, [&] { return !inbox.empty() || ended(); });
        if (!inbox.empty()) {
          message = inbox.front();
          inbox.pop_front();
        }
      }
      if (message != nullptr) {
        message->run();
      } else if (const auto next = clock.next_deadline()) {
        clock.set(*next);
        std::this_thread::yield();
      }
    }
  }
  // Lets run_until() look again.
  void wake() {
    const std::scoped_lock lock(mutex);
    arrived.notify_one();
  }

  ManualExecutor executor;
  ManualClock clock;
  ManualRandom random;
  NoNetwork network;
  ManualBufferPool buffers;
  ThreadMailboxes cross_shard;
  ManualBlockingPool blocking;
  FaultPoints faults;
  Env env;
  std::mutex mutex;
  std::condition_variable arrived;
  std::deque<ShardMessage*> inbox;
};

class Threads {
 public:
  ThreadShard shards[2] = {{*this, 0}, {*this, 1}};
};

Result<void> ThreadMailboxes::post(ShardId target, ShardMessage& message) {
  ThreadShard& to = threads_.shards[target.value];
  const std::scoped_lock lock(to.mutex);
  if (to.inbox.size() >= kMailboxMax) return fail(make_error(RuntimeError::overloaded));
  to.inbox.push_back(&message);
  to.arrived.notify_one();
  return {};
}

Task<std::unique_ptr<std::string>> echo(Env* env, std::string text) {
  co_await env->clock.sleep(microseconds(3));
  co_return std::make_unique<std::string>(text + " from " + std::to_string(env->shard.value));
}

Task<void> call(CrossShardService* service, ShardId target, std::uint32_t number,
                std::uint32_t* answered) {
  auto answer = co_await call_on(*service, target, [number](Env& env) {
    return echo(&env, "call number " + std::to_string(number));
  });
  EXPECT_TRUE(answer.has_value());
  EXPECT_EQ(**answer,
            "call number " + std::to_string(number) + " from " + std::to_string(target.value));
  ++*answered;
}

Task<void> stop(CrossShardService* service, bool* stopped) {
  co_await service->stop();
  *stopped = true;
}

TEST(CallOn, hands_values_between_threads_without_a_race) {
  // The caller's frame is written by another thread: only the mailbox may order the two.
  Threads threads;
  CrossShardGroup group(2);
  // Attempts enough for a clock that runs ahead of the other thread.
  const CrossShardLimits limits{.post_attempts_max = 1'000'000'000};
  std::atomic<int> ready = 0;
  std::atomic<int> finished = 0;
  const auto body = [&](std::uint32_t id) {
    ThreadShard& shard = threads.shards[id];
    CrossShardService service(shard.env, group, limits);
    ready.fetch_add(1);
    ready.notify_all();
    while (ready.load() != 2) ready.wait(1);

    std::uint32_t answered = 0;
    bool stopped = false;
    Scope scope(shard.executor);
    for (std::uint32_t i = 0; i < kCalls; ++i) {
      scope.spawn(call(&service, ShardId(1 - id), i, &answered));
    }
    shard.run_until([&] { return answered == kCalls; });
    // Serves the other shard until it has all of its answers.
    finished.fetch_add(1);
    threads.shards[1 - id].wake();
    shard.run_until([&] { return finished.load() == 2; });
    scope.spawn(stop(&service, &stopped));
    shard.run_until([&] { return stopped; });
  };
  std::thread other(body, 1);
  body(0);
  other.join();
}

}  // namespace
}  // namespace sarsen
