// Task, Scope and when_all: what every other file of the runtime is built on.
#include "dataplane/runtime/task.h"

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dataplane/runtime/event.h"
#include "dataplane/runtime/scope.h"
#include "dataplane/runtime/when_all.h"
#include "tests/unit/runtime/manual_env.h"

namespace sarsen {
namespace {

using testing::ElementsAre;

Task<int> twice(int value) {
  co_return 2 * value;
}

Task<void> deep(int depth, int* reached) {
  if (depth == 0) co_return;
  co_await deep(depth - 1, reached);
  ++*reached;
}

TEST(Task, starts_only_when_awaited) {
  // A caller may prepare tasks and decide later; nothing happens behind its back.
  ManualEnv world;
  Scope scope(world.executor);
  bool started = false;
  const auto body = [](bool* flag) -> Task<void> {
    *flag = true;
    co_return;
  };
  Task<void> task = body(&started);
  EXPECT_FALSE(started);
  scope.spawn(std::move(task));
  EXPECT_TRUE(started);
}

TEST(Task, uses_no_stack_for_tasks_that_end_at_once) {
  // A loop that awaits ready tasks a million times must not overflow the stack.
  ManualEnv world;
  Scope scope(world.executor);
  long sum = 0;
  const auto body = [](long* into) -> Task<void> {
    for (int i = 0; i < 1'000'000; ++i) *into += co_await twice(1);
  };
  scope.spawn(body(&sum));
  EXPECT_EQ(sum, 2'000'000);
}

TEST(Task, ends_a_deep_chain_without_recursion) {
  // Resuming a chain of callers goes by symmetric transfer.
  ManualEnv world;
  Scope scope(world.executor);
  int reached = 0;
  scope.spawn(deep(10'000, &reached));
  EXPECT_EQ(reached, 10'000);
}

TEST(Task, takes_braces_as_its_value) {
  // `co_return {};` is how a Result<void> coroutine says that all went well.
  ManualEnv world;
  Scope scope(world.executor);
  bool ok = false;
  const auto inner = []() -> Task<Result<void>> { co_return {}; };
  const auto body = [](Task<Result<void>> task, bool* into) -> Task<void> {
    *into = (co_await std::move(task)).has_value();
  };
  scope.spawn(body(inner(), &ok));
  EXPECT_TRUE(ok);
}

TEST(TaskDeathTest, refuses_to_be_awaited_twice) {
  // The second waiter would silently replace the first, which would then hang.
  ManualEnv world;
  Scope scope(world.executor);
  const auto body = []() -> Task<void> {
    Task<int> task = twice(1);
    co_await std::move(task);
    co_await std::move(task);  // NOLINT(bugprone-use-after-move): the mistake under test
  };
  EXPECT_DEATH(scope.spawn(body()), "a task is started once");
}

TEST(Scope, join_waits_for_all_including_late_ones) {
  // stop() of an owner must not return while a task that another task spawned still uses it.
  ManualEnv world;
  Scope scope(world.executor);
  Scope outer(world.executor);
  Event go(world.executor);
  std::vector<std::string> log;
  static constexpr auto late = [](Event* event, std::vector<std::string>* lines) -> Task<void> {
    co_await event->wait();
    lines->push_back("late");
  };
  const auto early = [](Scope* own, Event* event, std::vector<std::string>* lines) -> Task<void> {
    co_await event->wait();
    event->reset();
    own->spawn(late(event, lines));
    lines->push_back("early");
  };
  const auto join = [](Scope* joined, std::vector<std::string>* lines) -> Task<void> {
    co_await joined->join();
    lines->push_back("joined");
  };
  scope.spawn(early(&scope, &go, &log));
  outer.spawn(join(&scope, &log));
  go.set();
  world.run();
  EXPECT_THAT(log, ElementsAre("early"));
  go.set();
  world.run();
  EXPECT_THAT(log, ElementsAre("early", "late", "joined"));
}

TEST(ScopeDeathTest, refuses_to_die_with_running_tasks) {
  // A detached coroutine would run on freed memory later.
  ManualEnv world;
  Event never(world.executor);
  const auto body = [](Event* event) -> Task<void> { co_await event->wait(); };
  EXPECT_DEATH(
      {
        Scope scope(world.executor);
        scope.spawn(body(&never));
      },
      "a scope is joined before it is destroyed");
}

struct SpawnsWhenDestroyed {
  Scope* scope;
  int* started;
  static Task<void> count(int* into) {
    ++*into;
    co_return;
  }
  ~SpawnsWhenDestroyed() { scope->spawn(count(started)); }
};

Task<void> hold_until(Event* event, std::shared_ptr<int> held) {
  co_await event->wait();
  (void)held;
}

Task<void> own_a_scope(Executor* executor, Scope* other, Event* event, std::shared_ptr<int> held,
                       int* started) {
  const SpawnsWhenDestroyed mischief{other, started};
  Scope nested(*executor);
  nested.spawn(hold_until(event, held));
  co_await event->wait();
  co_await nested.join();
}

TEST(Scope, abandonment_destroys_nested_scopes_and_starts_nothing) {
  // In a simulated crash frames own scopes whose frames use them; destructors may still spawn.
  auto held = std::make_shared<int>(0);
  int started = 0;
  {
    ManualEnv world;
    Event never(world.executor);
    Scope other(world.executor);
    Scope scope(world.executor);
    scope.spawn(own_a_scope(&world.executor, &other, &never, held, &started));
    EXPECT_EQ(held.use_count(), 3);  // ours, and one in each frame
    world.executor.abandon();
    EXPECT_EQ(held.use_count(), 1);
  }
  EXPECT_EQ(started, 0);
}

Task<Result<int>> after(Event* event, int value, std::vector<int>* ended) {
  co_await event->wait();
  ended->push_back(value);
  if (value < 0) co_return fail(make_error(RuntimeError::io_error));
  co_return value;
}

Task<void> gather(Executor* executor, Event* a, Event* b, std::vector<int>* ended,
                  std::vector<std::string>* log) {
  auto [first, second, third] =
      co_await when_all(*executor, after(a, -1, ended), after(b, 2, ended), twice(4));
  log->push_back(first ? "ok" : "failed");
  log->push_back(std::to_string(*second));
  log->push_back(std::to_string(third));
}

TEST(WhenAll, awaits_every_task_even_when_one_fails) {
  // A task left behind would use buffers that its caller frees after the failure.
  ManualEnv world;
  Event a(world.executor);
  Event b(world.executor);
  std::vector<int> ended;
  std::vector<std::string> log;
  Scope scope(world.executor);
  scope.spawn(gather(&world.executor, &a, &b, &ended, &log));
  a.set();
  world.run();
  EXPECT_THAT(ended, ElementsAre(-1));
  EXPECT_THAT(log, ElementsAre());
  b.set();
  world.run();
  EXPECT_THAT(log, ElementsAre("failed", "2", "8"));
}

Task<void> record(int value, std::vector<int>* into) {
  into->push_back(value);
  co_return;
}

Task<void> gather_void(Executor* executor, std::vector<int>* into, bool* ended) {
  co_await when_all(*executor, record(1, into), record(2, into));
  std::vector<Task<void>> tasks;
  for (int i = 3; i < 6; ++i) tasks.push_back(record(i, into));
  co_await when_all(*executor, std::move(tasks));
  co_await when_all(*executor, std::vector<Task<void>>());
  std::vector<Task<int>> numbers;
  numbers.push_back(twice(3));
  numbers.push_back(twice(4));
  for (const int number : co_await when_all(*executor, std::move(numbers))) into->push_back(number);
  *ended = true;
}

TEST(WhenAll, starts_in_order_and_needs_no_turn_when_all_end_at_once) {
  // The primary sends to the backups before it appends: the order of starting is part of the
  // design.
  ManualEnv world;
  std::vector<int> order;
  bool ended = false;
  Scope scope(world.executor);
  scope.spawn(gather_void(&world.executor, &order, &ended));
  EXPECT_TRUE(ended);
  EXPECT_THAT(order, ElementsAre(1, 2, 3, 4, 5, 6, 8));
}

TEST(WhenAll, reports_the_first_error_in_the_order_of_the_tasks) {
  // Not in the order of time, which differs from run to run.
  const std::vector<Result<int>> values{1, fail(make_error(RuntimeError::io_error)),
                                        fail(make_error(RuntimeError::no_space))};
  EXPECT_TRUE(is(first_error(values).error(), RuntimeError::io_error));
  const std::tuple<Result<int>, Result<void>> all_well{1, Result<void>()};
  EXPECT_TRUE(first_error(all_well).has_value());
}

TEST(WhenAll, survives_a_crash_at_every_step) {
  // The tasks' frames die with the frame that gathers them.
  struct Shared {
    std::unique_ptr<Event> a, b;
    std::vector<int> ended;
    std::vector<std::string> log;
  };
  static constexpr auto setter = [](Event* event) -> Task<void> {
    event->set();
    co_return;
  };
  const std::size_t crashes =
      for_each_crash(2, [](ManualEnv& world, const std::vector<Scope*>& scopes) {
        static Shared shared;
        shared = {};
        shared.a = std::make_unique<Event>(world.executor);
        shared.b = std::make_unique<Event>(world.executor);
        scopes[0]->spawn(
            gather(&world.executor, shared.a.get(), shared.b.get(), &shared.ended, &shared.log));
        scopes[1]->spawn(setter(shared.a.get()));
        scopes[1]->spawn(setter(shared.b.get()));
      });
  EXPECT_GT(crashes, 4u);
}

}  // namespace
}  // namespace sarsen
