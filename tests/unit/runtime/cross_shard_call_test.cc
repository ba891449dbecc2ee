// Calls between shards.
#include "dataplane/runtime/cross_shard_call.h"

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dataplane/runtime/timeout.h"
#include "dataplane/runtime/yield.h"
#include "tests/unit/runtime/manual_env.h"

namespace sarsen {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::SizeIs;

using Log = std::vector<std::string>;

// Shards with a service and a scope each.
struct Process {
  struct Shard {
    Shard(Env& env, CrossShardGroup& group, CrossShardLimits limits)
        : service(env, group, limits), scope(env.executor) {}
    CrossShardService service;
    Scope scope;
  };
  explicit Process(std::uint32_t count, std::size_t mailbox_max = 4, CrossShardLimits limits = {})
      : world(count, mailbox_max), group(count) {
    for (std::uint32_t i = 0; i < count; ++i) {
      shards.push_back(std::make_unique<Shard>(world.shard(i).env, group, limits));
    }
  }
  void stop() {
    int stopped = 0;
    static constexpr auto body = [](CrossShardService* service, int* count) -> Task<void> {
      co_await service->stop();
      ++*count;
    };
    for (auto& shard : shards) shard->scope.spawn(body(&shard->service, &stopped));
    world.run_to_end();
    EXPECT_EQ(stopped, static_cast<int>(shards.size()));
  }
  CrossShardService& service(std::size_t i) { return shards[i]->service; }

  ManualWorld world;
  CrossShardGroup group;
  std::vector<std::unique_ptr<Shard>> shards;
};

Task<std::uint32_t> where(Env* env, int turns) {
  for (int i = 0; i < turns; ++i) co_await yield(env->executor);
  co_return env->shard.value;
}

Task<void> ask(CrossShardService* service, std::uint32_t target, int turns, Log* log) {
  const Result<std::uint32_t> answer =
      co_await call_on(*service, ShardId(target), [turns](Env& env) { return where(&env, turns); });
  log->push_back(answer ? std::to_string(*answer)
                        : std::string(answer.error().category().sentence(answer.error().code())));
}

TEST(CallOn, runs_on_the_target_and_answers_the_caller) {
  // The one way in which shards ask each other for something.
  Process process(3);
  Log log;
  for (const std::uint32_t target : {2u, 1u, 0u}) {
    process.shards[0]->scope.spawn(ask(&process.service(0), target, 2, &log));
    process.world.run();
  }
  EXPECT_THAT(log, ElementsAre("2", "1", "0"));
  process.stop();
}

TEST(CallOn, waits_while_the_mailbox_is_full_and_loses_no_call) {
  // Mailboxes are bounded, so a burst must queue at its senders.
  Process process(2, /*mailbox_max=*/1);
  Log log;
  for (int i = 0; i < 50; ++i) {
    process.shards[0]->scope.spawn(ask(&process.service(0), 1, i % 3, &log));
  }
  process.world.run_to_end();
  EXPECT_THAT(log, SizeIs(50));
  EXPECT_THAT(log, Each("1"));
  process.stop();
}

TEST(CallOn, gives_up_on_a_shard_that_does_not_take_messages) {
  // A stalled shard must not hang all others for ever.
  Process process(2, /*mailbox_max=*/1, {.post_attempts_max = 3});
  Log log;
  process.shards[0]->scope.spawn(ask(&process.service(0), 1, 0, &log));
  process.shards[0]->scope.spawn(ask(&process.service(0), 1, 0, &log));
  auto& shard = process.world.shard(0);
  while (const auto next = shard.clock.next_deadline()) {  // shard 1 does not run meanwhile
    shard.clock.set(*next);
    shard.executor.run();
  }
  EXPECT_THAT(log, ElementsAre("a bounded queue is full"));
  process.world.run();
  EXPECT_THAT(log, ElementsAre("a bounded queue is full", "1"));
  process.stop();
}

TEST(CallOn, bounds_the_calls_that_run_on_one_shard) {
  // Else a burst from many shards turns into memory growth on one.
  Process process(2, /*mailbox_max=*/8, {.calls_running_max = 2});
  Log log;
  for (int i = 0; i < 3; ++i) {
    process.shards[0]->scope.spawn(ask(&process.service(0), 1, 1, &log));
  }
  for (int i = 0; i < 3; ++i) process.world.deliver_one(0, 1);  // all before any of them ends
  process.world.run();
  EXPECT_THAT(log, ElementsAre("a bounded queue is full", "1", "1"));
  process.stop();
}

Task<Result<std::unique_ptr<std::string>>> fetch(bool found) {
  if (!found) co_return fail(make_error(RuntimeError::not_found));
  co_return std::make_unique<std::string>("value");
}

Task<void> nothing(int* ran) {
  ++*ran;
  co_return;
}

Task<void> ask_kinds(CrossShardService* service, std::uint32_t target, Log* log) {
  for (const bool found : {true, false}) {
    auto answer =
        co_await call_on(*service, ShardId(target), [found](Env&) { return fetch(found); });
    log->push_back(answer ? **answer : "none");
  }
  int ran = 0;
  const Result<void> done =
      co_await call_on(*service, ShardId(target), [&ran](Env&) { return nothing(&ran); });
  log->push_back(done && ran == 1 ? "ran" : "failed");
}

TEST(CallOn, gives_results_as_they_are_and_takes_tasks_without_value) {
  // A Result inside a Result would make every caller check twice.
  Process process(2);
  Log log;
  process.shards[0]->scope.spawn(ask_kinds(&process.service(0), 1, &log));
  process.world.run();
  process.shards[0]->scope.spawn(ask_kinds(&process.service(0), 0, &log));
  process.world.run();
  EXPECT_THAT(log, ElementsAre("value", "none", "ran", "value", "none", "ran"));
  process.stop();
}

TEST(CrossShardService, stop_answers_calls_in_progress_and_refuses_others) {
  // Shards stop in any order; none may wait for an answer that does not come.
  Process process(2);
  Log log;
  process.shards[0]->scope.spawn(ask(&process.service(0), 1, 50, &log));
  process.world.shard(0).executor.run();
  process.world.deliver_one(0, 1);
  static constexpr auto stop_one = [](CrossShardService* service) -> Task<void> {
    co_await service->stop();
  };
  process.shards[1]->scope.spawn(stop_one(&process.service(1)));
  process.shards[0]->scope.spawn(ask(&process.service(0), 1, 0, &log));
  process.shards[1]->scope.spawn(ask(&process.service(1), 0, 0, &log));
  process.world.run();
  EXPECT_THAT(log, testing::UnorderedElementsAre("the service is stopping",
                                                 "the service is stopping", "1"));
  process.shards[0]->scope.spawn(stop_one(&process.service(0)));
  process.world.run();
}

TEST(CallOn, survives_a_crash_of_the_process_at_every_step) {
  // All shards die at once: requests, tasks and answers are in every possible place.
  for (const bool caller_first : {false, true}) {
    for (int steps = 0; steps < 12; ++steps) {
      Process process(2, /*mailbox_max=*/1);
      Log log;
      for (int i = 0; i < 3; ++i) {
        process.shards[0]->scope.spawn(ask(&process.service(0), 1, 2, &log));
      }
      for (int i = 0; i < steps; ++i) {
        process.world.shard(i % 2 == 0 ? 1 : 0).executor.step();
        if (i % 3 == 1) process.world.deliver_one(0, 1);
        if (i % 3 == 2) process.world.deliver_one(1, 0);
      }
      process.world.shard(caller_first ? 0 : 1).executor.abandon();
      process.world.shard(caller_first ? 1 : 0).executor.abandon();
    }
  }
}

}  // namespace
}  // namespace sarsen
