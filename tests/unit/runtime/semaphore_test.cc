// Semaphore and Units: the bound on everything that is bounded.
#include "dataplane/runtime/semaphore.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dataplane/runtime/event.h"
#include "dataplane/runtime/scope.h"
#include "dataplane/runtime/yield.h"
#include "tests/unit/runtime/manual_env.h"

namespace sarsen {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Log = std::vector<std::string>;

Task<void> borrow(Semaphore* semaphore, std::uint64_t count, std::string name, Event* until,
                  Log* log, CancelToken token = {}) {
  auto units = co_await semaphore->acquire(count, token);
  if (!units) {
    log->push_back(name + ": " +
                   std::string(units.error().category().sentence(units.error().code())));
    co_return;
  }
  log->push_back(name);
  co_await until->wait();
}

TEST(Semaphore, serves_a_large_request_before_later_small_ones) {
  // If small requests overtook, a large write would starve under load.
  ManualEnv world;
  Semaphore semaphore(world.executor, 4, 8);
  Event first_done(world.executor);
  Event done(world.executor);
  Log log;
  Scope scope(world.executor);
  scope.spawn(borrow(&semaphore, 3, "three", &first_done, &log));
  scope.spawn(borrow(&semaphore, 4, "four", &done, &log));
  scope.spawn(borrow(&semaphore, 1, "one", &done, &log));
  world.run();
  EXPECT_THAT(log, ElementsAre("three"));  // one unit is free, but "one" stays behind "four"
  EXPECT_FALSE(semaphore.try_acquire(1).has_value());
  EXPECT_EQ(semaphore.waiting(), 2u);
  first_done.set();
  world.run();
  EXPECT_THAT(log, ElementsAre("three", "four"));
  done.set();
  world.run();
  EXPECT_THAT(log, ElementsAre("three", "four", "one"));
  EXPECT_EQ(semaphore.available(), 4u);
}

TEST(Semaphore, bounds_its_wait_queue) {
  // An unbounded queue turns overload into memory growth and then into a crash.
  ManualEnv world;
  Semaphore semaphore(world.executor, 1, 1);
  Event done(world.executor);
  Log log;
  Scope scope(world.executor);
  for (const char* name : {"holds", "waits", "refused"}) {
    scope.spawn(borrow(&semaphore, 1, name, &done, &log));
  }
  EXPECT_THAT(log, ElementsAre("holds", "refused: a bounded queue is full"));
  done.set();
  world.run();
  EXPECT_EQ(log.back(), "waits");
}

TEST(Semaphore, refuses_what_it_could_never_grant) {
  // Waiting for more than there is would hang for ever and block all behind it.
  ManualEnv world;
  Semaphore semaphore(world.executor, 2, 8);
  Event done(world.executor);
  done.set();
  Log log;
  Scope scope(world.executor);
  scope.spawn(borrow(&semaphore, 3, "three", &done, &log));
  scope.spawn(borrow(&semaphore, 2, "two", &done, &log));
  EXPECT_THAT(log, ElementsAre("three: an argument is not acceptable", "two"));
}

TEST(Semaphore, close_fails_waiters_and_takes_units_back) {
  // stop() first ends the waits, then the holders.
  ManualEnv world;
  Semaphore semaphore(world.executor, 1, 8);
  Event done(world.executor);
  Log log;
  Scope scope(world.executor);
  scope.spawn(borrow(&semaphore, 1, "holds", &done, &log));
  scope.spawn(borrow(&semaphore, 1, "waits", &done, &log));
  semaphore.close();
  scope.spawn(borrow(&semaphore, 1, "late", &done, &log));
  world.run();
  EXPECT_THAT(
      log, ElementsAre("holds", "late: the service is stopping", "waits: the service is stopping"));
  EXPECT_EQ(semaphore.available(), 0u);
  done.set();
  world.run();
  EXPECT_EQ(semaphore.available(), 1u);
}

TEST(Semaphore, a_cancelled_head_lets_the_next_one_go) {
  // The head blocked those behind it; when it leaves, what fits must be granted at once.
  ManualEnv world;
  Semaphore semaphore(world.executor, 4, 8);
  Event done(world.executor);
  CancelSource source(world.executor);
  Log log;
  Scope scope(world.executor);
  scope.spawn(borrow(&semaphore, 3, "three", &done, &log));
  scope.spawn(borrow(&semaphore, 4, "four", &done, &log, source.token()));
  scope.spawn(borrow(&semaphore, 1, "one", &done, &log));
  source.cancel();
  world.run();
  EXPECT_THAT(log, ElementsAre("three", "four: the operation was cancelled", "one"));
  EXPECT_EQ(semaphore.waiting(), 0u);
  done.set();
  world.run();
}

TEST(Semaphore, a_grant_before_a_cancellation_stands) {
  // The units are the waiter's from the grant on; failing it then would leak them.
  ManualEnv world;
  Semaphore semaphore(world.executor, 1, 8);
  Event first_done(world.executor);
  Event done(world.executor);
  CancelSource source(world.executor);
  Log log;
  Scope scope(world.executor);
  scope.spawn(borrow(&semaphore, 1, "first", &first_done, &log));
  scope.spawn(borrow(&semaphore, 1, "second", &done, &log, source.token()));
  first_done.set();
  world.executor.step();  // "first" gives back, which grants "second"
  source.cancel();
  semaphore.close();
  world.run();
  EXPECT_THAT(log, ElementsAre("first", "second"));
  done.set();
  world.run();
}

Task<void> borrow_for_a_turn(Executor* executor, Semaphore* semaphore, std::uint64_t count,
                             std::uint64_t* lent) {
  const auto units = co_await semaphore->acquire(count);
  *lent += count;
  EXPECT_LE(*lent, semaphore->capacity());
  co_await yield(*executor);
  *lent -= count;
}

TEST(Semaphore, never_lends_more_than_it_has_in_any_order) {
  // The order of ready coroutines is not ours: the bound must hold, and all be served, in each.
  const std::size_t orders = for_each_order([](Choose choose) {
    ManualEnv world;
    world.executor.set_choose(choose);
    Semaphore semaphore(world.executor, 3, 8);
    std::uint64_t lent = 0;
    Scope scope(world.executor);
    for (const std::uint64_t count : {1u, 2u, 3u, 1u, 1u, 2u}) {
      scope.spawn(borrow_for_a_turn(&world.executor, &semaphore, count, &lent));
    }
    world.run();
    EXPECT_EQ(scope.size(), 0u);
    EXPECT_EQ(semaphore.available(), 3u);
  });
  EXPECT_GT(orders, 4u);
}

TEST(Units, split_merge_and_give_back_account_exactly) {
  // Space credits are split per record and merged per group: none may be lost or made up.
  ManualEnv world;
  Semaphore semaphore(world.executor, 10, 8);
  Units all = *semaphore.try_acquire(10);
  {
    Units three = all.split(3);
    EXPECT_EQ(all.count(), 7u);
    Units two = three.split(2);
    three.merge(std::move(two));
    EXPECT_EQ(three.count(), 3u);
    EXPECT_EQ(semaphore.available(), 0u);
    three.give_back(1);
    EXPECT_EQ(semaphore.available(), 1u);
  }
  EXPECT_EQ(semaphore.available(), 3u);
  all = Units();
  EXPECT_EQ(semaphore.available(), 10u);
}

TEST(UnitsDeathTest, refuses_to_split_more_than_it_holds) {
  // The count would wrap around to units that nobody lent.
  ManualEnv world;
  Semaphore semaphore(world.executor, 2, 8);
  Units units = *semaphore.try_acquire(2);
  EXPECT_DEATH((void)units.split(3), "units are split from what is held");
}

TEST(SemaphoreDeathTest, refuses_to_die_with_units_out) {
  // They would come back to freed memory.
  ManualEnv world;
  Units units;
  EXPECT_DEATH(
      {
        Semaphore semaphore(world.executor, 2, 8);
        units = *semaphore.try_acquire(1);
      },
      "all units are back");
}

struct Shared {
  Semaphore* semaphore = nullptr;
  Event* done = nullptr;
  CancelSource* source = nullptr;
  Log log;
};

Task<void> own(Executor* executor, Shared* shared) {
  Event never(*executor);
  Event done(*executor);
  CancelSource source(*executor);
  Semaphore semaphore(*executor, 2, 8);
  *shared = {&semaphore, &done, &source, {}};
  co_await never.wait();
}

Task<void> disturb(Shared* shared) {
  shared->done->set();
  shared->source->cancel();
  co_return;
}

TEST(Semaphore, survives_a_crash_at_every_step_and_in_every_order) {
  // Units, waiters and the semaphore die in any order; none may touch another that is gone.
  Shared shared;
  const std::size_t crashes =
      for_each_crash(3, [&](ManualEnv& world, const std::vector<Scope*>& scopes) {
        scopes[0]->spawn(own(&world.executor, &shared));
        scopes[1]->spawn(borrow(shared.semaphore, 2, "a", shared.done, &shared.log));
        scopes[2]->spawn(borrow(shared.semaphore, 1, "b", shared.done, &shared.log));
        scopes[1]->spawn(
            borrow(shared.semaphore, 2, "c", shared.done, &shared.log, shared.source->token()));
        scopes[2]->spawn(borrow(shared.semaphore, 1, "d", shared.done, &shared.log));
        scopes[2]->spawn(disturb(&shared));
      });
  EXPECT_GE(crashes, 6u * 4u);
}

}  // namespace
}  // namespace sarsen
