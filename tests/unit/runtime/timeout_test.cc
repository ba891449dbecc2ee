// Timer, Deadline, sleeps with a token, with_timeout and Periodic.
#include "dataplane/runtime/timeout.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dataplane/runtime/event.h"
#include "dataplane/runtime/periodic.h"
#include "dataplane/runtime/scope.h"
#include "dataplane/runtime/yield.h"
#include "tests/unit/runtime/manual_env.h"

namespace sarsen {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Log = std::vector<std::string>;

std::string name_of(const Result<void>& result) {
  if (result) return "ok";
  return std::string(result.error().category().sentence(result.error().code()));
}

TEST(Timer, fires_once_at_the_last_deadline_it_was_given) {
  // Re-arming is how an idle timer is pushed back; the earlier deadline must not fire as well.
  ManualEnv world;
  int fired = 0;
  Timer timer(world.clock, [&] { ++fired; });
  timer.arm(world.clock.now() + milliseconds(1));
  timer.arm(world.clock.now() + milliseconds(3));
  world.advance(milliseconds(2));
  EXPECT_EQ(fired, 0);
  world.advance(milliseconds(2));
  EXPECT_EQ(fired, 1);
  EXPECT_FALSE(timer.armed());
  timer.arm(world.clock.now());
  EXPECT_EQ(fired, 2);  // the time has come already
  timer.arm(kNever);
  EXPECT_EQ(world.clock.sleeping(), 0u);
}

TEST(Timer, can_be_armed_again_from_its_own_function) {
  // A periodic beat without a coroutine.
  ManualEnv world;
  struct Beat {
    ManualEnv& world;
    int count = 0;
    Timer<std::function<void()>> timer;
    explicit Beat(ManualEnv& env) : world(env), timer(env.clock, [this] { again(); }) {}
    void again() {
      ++count;
      timer.arm(world.clock.now() + milliseconds(1));
    }
  } beat(world);
  beat.again();
  world.advance(milliseconds(10));
  EXPECT_EQ(beat.count, 11);
}

TEST(Deadline, never_is_after_everything_and_does_not_overflow) {
  // Sums with far times come from configuration ("no timeout").
  ManualEnv world;
  const Deadline never;
  EXPECT_TRUE(never.is_never());
  EXPECT_TRUE(Deadline::after(world.clock, Duration(kNever.value)).is_never());
  const Deadline soon = Deadline::after(world.clock, milliseconds(5));
  EXPECT_EQ(never.earlier(soon), soon);
  EXPECT_EQ(soon.remaining(world.clock), milliseconds(5));
  world.advance(milliseconds(6));
  EXPECT_TRUE(soon.passed(world.clock));
  EXPECT_EQ(soon.remaining(world.clock), Duration(0));
}

Task<void> nap(Clock* clock, Duration duration, CancelToken token, Log* log) {
  log->push_back(name_of(co_await sleep_for(*clock, duration, token)));
}

TEST(Sleep, ends_at_its_time_or_at_cancellation_whichever_is_first) {
  // A background task that sleeps for minutes must not hold up stop().
  ManualEnv world;
  CancelSource source(world.executor);
  Log log;
  Scope scope(world.executor);
  scope.spawn(nap(&world.clock, milliseconds(1), source.token(), &log));
  scope.spawn(nap(&world.clock, seconds(60), source.token(), &log));
  world.advance(milliseconds(2));
  EXPECT_THAT(log, ElementsAre("ok"));
  source.cancel(RuntimeError::stopped);
  world.run();
  EXPECT_THAT(log, ElementsAre("ok", "the service is stopping"));
  scope.spawn(nap(&world.clock, seconds(60), source.token(), &log));
  EXPECT_EQ(log.size(), 3u);
  EXPECT_EQ(world.clock.sleeping(), 0u);
}

TEST(Sleep, that_came_to_its_time_before_a_cancellation_is_a_success) {
  // Its coroutine is already scheduled: it must be woken once and say what happened first.
  ManualEnv world;
  CancelSource source(world.executor);
  Log log;
  Scope scope(world.executor);
  scope.spawn(nap(&world.clock, milliseconds(1), source.token(), &log));
  world.clock.set(world.clock.now() + milliseconds(1));
  source.cancel();
  world.run();
  EXPECT_THAT(log, ElementsAre("ok"));
}

// Waits for the event, and after a cancellation takes `cleanup_turns` more turns to end.
Task<Result<int>> work(Executor* executor, Event* event, int cleanup_turns, CancelToken token) {
  const Result<void> waited = co_await event->wait(token);
  if (waited) co_return 42;
  for (int i = 0; i < cleanup_turns; ++i) co_await yield(*executor);
  co_return fail(waited.error());
}

Task<void> limited(Env* env, Event* event, Duration timeout, CancelToken parent, Log* log) {
  auto result = co_await with_timeout(
      env->clock, env->executor, timeout,
      [env, event](CancelToken token) { return work(&env->executor, event, 3, token); }, parent);
  log->push_back(result ? std::to_string(*result) : name_of(fail(result.error())));
}

TEST(WithTimeout, tells_the_task_and_then_waits_for_it) {
  // A task that was left behind would go on using the caller's buffers.
  ManualEnv world;
  Event event(world.executor);
  Log log;
  Scope scope(world.executor);
  scope.spawn(limited(&world.env(), &event, milliseconds(5), {}, &log));
  world.clock.set(world.clock.now() + milliseconds(5));
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(world.executor.step());
    EXPECT_THAT(log, IsEmpty());
  }
  world.run();
  EXPECT_THAT(log, ElementsAre("the operation did not end before its deadline"));
}

TEST(WithTimeout, gives_the_value_of_a_task_that_ends_in_time_and_leaves_no_timer) {
  // A timer per request that lingered until its deadline would pile up.
  ManualEnv world;
  Event event(world.executor);
  Log log;
  Scope scope(world.executor);
  scope.spawn(limited(&world.env(), &event, seconds(60), {}, &log));
  EXPECT_EQ(world.clock.sleeping(), 1u);
  event.set();
  world.run();
  EXPECT_THAT(log, ElementsAre("42"));
  EXPECT_EQ(world.clock.sleeping(), 0u);
}

TEST(WithTimeout, passes_a_cancellation_of_its_parent_on) {
  // stop() must reach through every layer of deadlines, with its own reason.
  ManualEnv world;
  Event event(world.executor);
  CancelSource parent(world.executor);
  Log log;
  Scope scope(world.executor);
  scope.spawn(limited(&world.env(), &event, seconds(60), parent.token(), &log));
  parent.cancel(RuntimeError::stopped);
  world.run();
  EXPECT_THAT(log, ElementsAre("the service is stopping"));
  scope.spawn(limited(&world.env(), &event, Duration(0), {}, &log));
  world.run();
  EXPECT_EQ(log.back(), "the operation did not end before its deadline");
}

TEST(WithTimeout, has_one_outcome_in_a_race_of_deadline_and_completion) {
  // Both come in the same turn: in either order the task ends once, and says which was first.
  for (const bool event_first : {false, true}) {
    ManualEnv world;
    Event event(world.executor);
    Log log;
    Scope scope(world.executor);
    scope.spawn(limited(&world.env(), &event, milliseconds(5), {}, &log));
    if (event_first) event.set();
    world.clock.set(world.clock.now() + milliseconds(5));
    if (!event_first) event.set();
    world.run();
    EXPECT_THAT(log,
                ElementsAre(event_first ? "42" : "the operation did not end before its deadline"));
  }
}

TEST(WithTimeout, survives_a_crash_at_every_step) {
  // Timers, sources and tasks die together, whoever is first.
  Log log;
  for_each_crash(2, [&](ManualEnv& world, const std::vector<Scope*>& scopes) {
    static constexpr auto owner = [](Env* env, Log* into, Scope* other) -> Task<void> {
      Event event(env->executor);
      CancelSource source(env->executor);
      other->spawn(limited(env, &event, milliseconds(5), source.token(), into));
      other->spawn(nap(&env->clock, milliseconds(5), source.token(), into));
      for (int i = 0; i < 3; ++i) co_await yield(env->executor);
      source.cancel();
      for (int i = 0; i < 9; ++i) co_await yield(env->executor);
    };
    scopes[0]->spawn(owner(&world.env(), &log, scopes[1]));
  });
}

// A body that notes its runs and takes `turns` turns.
struct Worker {
  explicit Worker(ManualEnv& env, Duration period)
      : world(env), periodic(env.clock, env.executor, period, [this](CancelToken token) {
          return run(token);
        }) {}
  Task<void> run(CancelToken token) {
    EXPECT_FALSE(running);
    running = true;
    ++runs;
    (void)co_await sleep_for(world.clock, milliseconds(5), token);
    running = false;
  }
  ManualEnv& world;
  int runs = 0;
  bool running = false;
  Periodic periodic;
};

Task<void> stop(Worker* worker, bool* stopped) {
  co_await worker->periodic.stop();
  *stopped = true;
}

TEST(Periodic, runs_each_period_counted_from_the_end_of_a_run) {
  // A run that takes longer than its period must not be followed by a burst.
  ManualEnv world;
  Worker worker(world, milliseconds(10));
  worker.periodic.start();
  world.advance(milliseconds(9));
  EXPECT_EQ(worker.runs, 0);
  world.advance(milliseconds(30));  // runs at 10 and 25
  EXPECT_EQ(worker.runs, 2);
  bool stopped = false;
  Scope scope(world.executor);
  scope.spawn(stop(&worker, &stopped));
  world.run();
  EXPECT_TRUE(stopped);
}

TEST(Periodic, runs_once_more_for_any_number_of_triggers_during_a_run) {
  // Level-triggered: what happened while the task looked elsewhere must not be missed, nor counted.
  ManualEnv world;
  Worker worker(world, Duration(0));
  worker.periodic.start();
  worker.periodic.trigger();
  world.run();
  EXPECT_EQ(worker.runs, 1);
  for (int i = 0; i < 5; ++i) worker.periodic.trigger();
  world.advance(milliseconds(100));
  EXPECT_EQ(worker.runs, 2);
  bool stopped = false;
  Scope scope(world.executor);
  scope.spawn(stop(&worker, &stopped));
  world.run();
}

TEST(Periodic, stop_ends_a_run_and_the_wait_for_the_next) {
  // stop() is part of every shutdown, which is bounded in time.
  ManualEnv world;
  Worker worker(world, milliseconds(10));
  worker.periodic.start();
  worker.periodic.trigger();
  world.run();
  EXPECT_TRUE(worker.running);
  worker.periodic.trigger();
  bool stopped = false;
  Scope scope(world.executor);
  scope.spawn(stop(&worker, &stopped));
  world.run();  // no time passes
  EXPECT_TRUE(stopped);
  EXPECT_FALSE(worker.running);
  EXPECT_EQ(worker.runs, 1);
  EXPECT_EQ(world.clock.sleeping(), 0u);
}

}  // namespace
}  // namespace sarsen
