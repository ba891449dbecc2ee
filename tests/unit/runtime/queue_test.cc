// Queue: bounded hand-over between coroutines.
#include "dataplane/runtime/queue.h"

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dataplane/runtime/scope.h"
#include "tests/unit/runtime/manual_env.h"

namespace sarsen {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using IntQueue = Queue<std::unique_ptr<int>>;  // values that can only be moved
using Log = std::vector<std::string>;

Task<void> produce(IntQueue* queue, int first, int count, Log* log, CancelToken token = {}) {
  for (int i = first; i < first + count; ++i) {
    const Result<void> pushed = co_await queue->push(std::make_unique<int>(i), token);
    if (!pushed) {
      log->push_back("push " + std::to_string(i) + ": " + std::string(pushed.error().message()));
      co_return;
    }
  }
}

Task<void> consume(IntQueue* queue, std::vector<int>* into, Log* log, CancelToken token = {}) {
  while (true) {
    auto value = co_await queue->pop(token);
    if (!value) {
      log->push_back("pop: " + std::string(value.error().message()));
      co_return;
    }
    into->push_back(**value);
  }
}

TEST(Queue, keeps_order_and_bound_while_producer_and_consumer_alternate) {
  // More values than the capacity: pushers must wait and go on in their order.
  ManualEnv world;
  IntQueue queue(world.executor, 2);
  std::vector<int> got;
  Log log;
  Scope scope(world.executor);
  scope.spawn(produce(&queue, 0, 6, &log));
  EXPECT_EQ(queue.size(), 2u);
  EXPECT_FALSE(queue.try_push(std::make_unique<int>(9)));
  scope.spawn(consume(&queue, &got, &log));
  world.run();
  EXPECT_THAT(got, ElementsAre(0, 1, 2, 3, 4, 5));
  queue.close();
  world.run();
  EXPECT_THAT(log, ElementsAre("pop: runtime: the service is stopping"));
}

TEST(Queue, gives_waiting_poppers_their_values_in_order_of_waiting) {
  // A value for a popper must not be snatched by one that came later, in whatever order they run.
  for_each_order([](Choose choose) {
    ManualEnv world;
    world.executor.set_choose(choose);
    IntQueue queue(world.executor, 4);
    static constexpr auto pop_one = [](IntQueue* from, int* into) -> Task<void> {
      auto value = co_await from->pop();
      *into = **value;
    };
    std::vector<int> got(3, -1);
    Scope scope(world.executor);
    for (int& each : got) scope.spawn(pop_one(&queue, &each));
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(queue.try_push(std::make_unique<int>(i)));
    EXPECT_EQ(queue.size(), 0u);
    EXPECT_EQ(queue.try_pop(), std::nullopt);
    world.run();
    EXPECT_THAT(got, ElementsAre(0, 1, 2));
  });
}

TEST(Queue, close_fails_pushers_but_gives_out_what_is_inside) {
  // What was accepted is served; what was not is told so.
  ManualEnv world;
  IntQueue queue(world.executor, 2);
  std::vector<int> got;
  Log log;
  Scope scope(world.executor);
  scope.spawn(produce(&queue, 0, 3, &log));
  queue.close();
  world.run();
  EXPECT_THAT(log, ElementsAre("push 2: runtime: the service is stopping"));
  scope.spawn(consume(&queue, &got, &log));
  EXPECT_THAT(got, ElementsAre(0, 1));
  EXPECT_EQ(log.back(), "pop: runtime: the service is stopping");
}

TEST(Queue, a_cancelled_pusher_takes_its_value_away) {
  // Its caller was told that the value was not accepted, so it must not arrive later.
  ManualEnv world;
  IntQueue queue(world.executor, 1);
  CancelSource source(world.executor);
  std::vector<int> got;
  Log log;
  Scope scope(world.executor);
  scope.spawn(produce(&queue, 0, 2, &log, source.token()));
  scope.spawn(produce(&queue, 10, 1, &log));
  source.cancel();
  world.run();
  EXPECT_THAT(log, ElementsAre("push 1: runtime: the operation was cancelled"));
  queue.close();
  scope.spawn(consume(&queue, &got, &log));
  EXPECT_THAT(got, ElementsAre(0));
  world.run();
}

TEST(Queue, a_value_handed_over_before_a_cancellation_is_received) {
  // Else the value would be lost between the two.
  ManualEnv world;
  IntQueue queue(world.executor, 1);
  CancelSource source(world.executor);
  std::vector<int> got;
  Log log;
  Scope scope(world.executor);
  scope.spawn(consume(&queue, &got, &log, source.token()));
  EXPECT_TRUE(queue.try_push(std::make_unique<int>(5)));
  source.cancel();
  world.run();
  EXPECT_THAT(got, ElementsAre(5));
  EXPECT_THAT(log, ElementsAre("pop: runtime: the operation was cancelled"));
}

TEST(Queue, loses_and_repeats_nothing_in_any_order) {
  // Two producers, two consumers, one slot: all orders of ready coroutines.
  const std::size_t orders = for_each_order([](Choose choose) {
    ManualEnv world;
    world.executor.set_choose(choose);
    IntQueue queue(world.executor, 1);
    std::vector<int> got;
    Log log;
    Scope scope(world.executor);
    scope.spawn(produce(&queue, 0, 3, &log));
    scope.spawn(produce(&queue, 10, 3, &log));
    scope.spawn(consume(&queue, &got, &log));
    scope.spawn(consume(&queue, &got, &log));
    world.run();
    EXPECT_THAT(got, testing::UnorderedElementsAre(0, 1, 2, 10, 11, 12));
    queue.close();
    world.run();
    EXPECT_EQ(scope.size(), 0u);
  });
  EXPECT_GT(orders, 10u);
}

struct Shared {
  IntQueue* queue = nullptr;
  std::vector<int> got;
  Log log;
};

Task<void> own(Executor* executor, Shared* shared) {
  IntQueue never(*executor, 1);
  IntQueue queue(*executor, 1);
  shared->queue = &queue;
  (void)co_await never.pop();
}

TEST(Queue, survives_a_crash_at_every_step_and_in_every_order) {
  // Values in flight are freed with the frame or the queue that holds them.
  Shared shared;
  const std::size_t crashes =
      for_each_crash(3, [&](ManualEnv& world, const std::vector<Scope*>& scopes) {
        shared = {};
        scopes[0]->spawn(own(&world.executor, &shared));
        scopes[1]->spawn(produce(shared.queue, 0, 3, &shared.log));
        scopes[2]->spawn(consume(shared.queue, &shared.got, &shared.log));
        scopes[1]->spawn(produce(shared.queue, 10, 2, &shared.log));
      });
  EXPECT_GE(crashes, 6u * 4u);
}

}  // namespace
}  // namespace sarsen
