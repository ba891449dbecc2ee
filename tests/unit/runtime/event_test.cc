// Event, Condition and Gate.
#include "dataplane/runtime/event.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dataplane/runtime/condition.h"
#include "dataplane/runtime/gate.h"
#include "dataplane/runtime/scope.h"
#include "tests/unit/runtime/manual_env.h"

namespace sarsen {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Log = std::vector<std::string>;

std::string outcome(const Result<void>& result) {
  return result ? "ok" : std::string(result.error().message());
}

Task<void> wait_for(Event* event, std::string name, Log* log) {
  co_await event->wait();
  log->push_back(name);
}

Task<void> wait_for(Event* event, CancelToken token, Log* log) {
  log->push_back(outcome(co_await event->wait(token)));
}

TEST(Event, resumes_waiters_in_a_later_turn) {
  // Inline resumption would run foreign code in the middle of the setter's invariants.
  ManualEnv world;
  Event event(world.executor);
  Log log;
  Scope scope(world.executor);
  scope.spawn(wait_for(&event, "first", &log));
  scope.spawn(wait_for(&event, "second", &log));
  event.set();
  EXPECT_THAT(log, IsEmpty());
  world.run();
  EXPECT_THAT(log, ElementsAre("first", "second"));
  scope.spawn(wait_for(&event, "already set", &log));
  EXPECT_EQ(log.back(), "already set");
}

TEST(Event, lets_through_those_who_waited_though_it_is_reset_at_once) {
  // Else set(); reset() loses the wake-up and the waiter hangs.
  ManualEnv world;
  Event event(world.executor);
  Log log;
  Scope scope(world.executor);
  scope.spawn(wait_for(&event, "before", &log));
  event.set();
  event.reset();
  scope.spawn(wait_for(&event, "after", &log));
  world.run();
  EXPECT_THAT(log, ElementsAre("before"));
  event.set();
  world.run();
  EXPECT_THAT(log, ElementsAre("before", "after"));
}

TEST(Event, decides_a_race_of_set_and_cancel_by_which_came_first) {
  // The outcome belongs to the moment of waking; a later event must not change it, nor wake twice.
  ManualEnv world;
  Event event(world.executor);
  CancelSource source(world.executor);
  Log log;
  Scope scope(world.executor);
  scope.spawn(wait_for(&event, source.token(), &log));
  event.set();
  source.cancel();
  world.run();
  EXPECT_THAT(log, ElementsAre("ok"));

  log.clear();
  event.reset();
  CancelSource other(world.executor);
  scope.spawn(wait_for(&event, other.token(), &log));
  other.cancel(RuntimeError::stopped);
  event.set();
  world.run();
  EXPECT_THAT(log, ElementsAre("runtime: the service is stopping"));
}

TEST(EventDeathTest, refuses_to_lose_a_waiter) {
  // A destroyed frame that waits, outside of a simulated crash, is a caller that forgot to await.
  ManualEnv world;
  Event event(world.executor);
  const auto start_and_drop = [&] {
    struct Ignore final : TaskObserver {
      void task_finished() noexcept override {}
    } ignore;
    Log log;
    Task<void> task = wait_for(&event, "never", &log);
    task.start(ignore);
  };
  EXPECT_DEATH(start_and_drop(), "destroyed only in a simulated crash");
}

Task<void> take_one(Condition* condition, int* stock, std::string name, Log* log) {
  co_await condition->wait_until([stock] { return *stock > 0; });
  --*stock;
  log->push_back(name);
}

Task<void> take_one(Condition* condition, int* stock, CancelToken token, Log* log) {
  const Result<void> result = co_await condition->wait_until([stock] { return *stock > 0; }, token);
  if (result) --*stock;
  log->push_back(outcome(result));
}

TEST(Condition, holds_its_predicate_at_return_in_every_order) {
  // Two waiters are woken for one item: whoever runs second must see that it is gone, and wait on.
  const std::size_t orders = for_each_order([](Choose choose) {
    ManualEnv world;
    world.executor.set_choose(choose);
    Condition condition(world.executor);
    int stock = 0;
    Log log;
    Scope scope(world.executor);
    for (const char* name : {"a", "b", "c"}) scope.spawn(take_one(&condition, &stock, name, &log));
    ++stock;
    condition.notify_all();
    world.run();
    EXPECT_EQ(stock, 0);
    EXPECT_EQ(log.size(), 1u);
    stock += 2;
    condition.notify_all();
    world.run();
    EXPECT_EQ(stock, 0);
    EXPECT_EQ(log.size(), 3u);
  });
  EXPECT_EQ(orders, 12u);  // 3! then 2!
}

TEST(Condition, notifies_the_longest_waiting_first) {
  // Fairness: without it one unlucky request waits for ever under load.
  ManualEnv world;
  Condition condition(world.executor);
  int stock = 0;
  Log log;
  Scope scope(world.executor);
  for (const char* name : {"a", "b", "c"}) scope.spawn(take_one(&condition, &stock, name, &log));
  for (int i = 0; i < 3; ++i) {
    ++stock;
    condition.notify_one();
    world.run();
  }
  EXPECT_THAT(log, ElementsAre("a", "b", "c"));
  EXPECT_FALSE(condition.has_waiters());
}

TEST(Condition, ends_a_wait_whose_token_is_cancelled) {
  // stop() must be able to end a wait for something that will not happen any more.
  ManualEnv world;
  Condition condition(world.executor);
  CancelSource source(world.executor);
  int stock = 0;
  Log log;
  Scope scope(world.executor);
  scope.spawn(take_one(&condition, &stock, source.token(), &log));
  source.cancel();
  world.run();
  EXPECT_THAT(log, ElementsAre("runtime: the operation was cancelled"));
  stock = 1;
  scope.spawn(take_one(&condition, &stock, source.token(), &log));
  EXPECT_EQ(log.back(), "ok");  // what is there needs no wait
}

Task<void> work_under(Gate* gate, Event* go, Log* log) {
  auto hold = gate->hold();
  if (!hold) {
    log->push_back(std::string(hold.error().message()));
    co_return;
  }
  co_await go->wait();
  log->push_back("worked");
}

Task<void> close_gate(Gate* gate, Log* log) {
  co_await gate->close();
  log->push_back("closed");
}

TEST(Gate, close_waits_for_holders_and_refuses_new_ones) {
  // After stop() nothing may touch the object.
  ManualEnv world;
  Gate gate(world.executor);
  Event first(world.executor);
  Event second(world.executor);
  Log log;
  Scope scope(world.executor);
  scope.spawn(work_under(&gate, &first, &log));
  scope.spawn(work_under(&gate, &second, &log));
  scope.spawn(close_gate(&gate, &log));
  scope.spawn(work_under(&gate, &first, &log));
  EXPECT_THAT(log, ElementsAre("runtime: the service is stopping"));
  EXPECT_EQ(gate.holders(), 2u);
  first.set();
  world.run();
  EXPECT_EQ(log.back(), "worked");
  second.set();
  world.run();
  EXPECT_THAT(log, ElementsAre("runtime: the service is stopping", "worked", "worked", "closed"));
  scope.spawn(close_gate(&gate, &log));
  EXPECT_EQ(log.size(), 5u);  // again, without a wait
}

TEST(Gate, a_moved_holder_leaves_once) {
  // A double release would let close() return while work goes on.
  ManualEnv world;
  Gate gate(world.executor);
  {
    Gate::Holder first = *gate.hold();
    Gate::Holder second = std::move(first);
    EXPECT_EQ(gate.holders(), 1u);
    second = *gate.hold();
    EXPECT_EQ(gate.holders(), 1u);
  }
  EXPECT_EQ(gate.holders(), 0u);
  (void)gate.close();
}

TEST(GateDeathTest, refuses_to_die_open) {
  // An owner that forgot close() has no stop().
  ManualEnv world;
  EXPECT_DEATH(
      {
        Gate gate(world.executor);
        (void)gate.hold();
      },
      "a gate is closed before it is destroyed");
}

// A frame that owns the primitives which the other frames wait for.
struct Shared {
  Event* event = nullptr;
  Condition* condition = nullptr;
  Gate* gate = nullptr;
  CancelSource* source = nullptr;
  int stock = 0;
  Log log;
};

Task<void> own_primitives(Executor* executor, Shared* shared) {
  Event never(*executor);
  Event event(*executor);
  Condition condition(*executor);
  Gate gate(*executor);
  CancelSource source(*executor);
  shared->event = &event;
  shared->condition = &condition;
  shared->gate = &gate;
  shared->source = &source;
  co_await never.wait();
}

Task<void> announce(Shared* shared) {
  shared->stock = 1;
  shared->condition->notify_one();
  shared->event->set();
  (void)shared->gate->close();
  shared->source->cancel();
  co_return;
}

TEST(Event, and_condition_and_gate_survive_a_crash_at_every_step_and_in_every_order) {
  // The simulator crashes nodes at any moment: waiters may outlive what they wait for.
  Shared shared;
  const std::size_t crashes =
      for_each_crash(3, [&](ManualEnv& world, const std::vector<Scope*>& scopes) {
        shared = {};
        scopes[0]->spawn(own_primitives(&world.executor, &shared));
        scopes[1]->spawn(wait_for(shared.event, "event", &shared.log));
        scopes[1]->spawn(wait_for(shared.event, shared.source->token(), &shared.log));
        scopes[1]->spawn(take_one(shared.condition, &shared.stock, "condition", &shared.log));
        scopes[1]->spawn(
            take_one(shared.condition, &shared.stock, shared.source->token(), &shared.log));
        scopes[2]->spawn(work_under(shared.gate, shared.event, &shared.log));
        scopes[1]->spawn(close_gate(shared.gate, &shared.log));
        scopes[2]->spawn(announce(&shared));
      });
  EXPECT_GE(crashes, 6u * 6u);
}

}  // namespace
}  // namespace sarsen
