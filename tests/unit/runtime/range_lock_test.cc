// Range locks: what makes every block one register.
#include "dataplane/runtime/range_lock.h"

#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dataplane/base/rng.h"
#include "dataplane/runtime/event.h"
#include "dataplane/runtime/scope.h"
#include "dataplane/runtime/yield.h"
#include "tests/unit/runtime/manual_env.h"

namespace sarsen {
namespace {

using testing::ElementsAre;

using Table = RangeLockTable<std::uint64_t>;
using Lock = RangeLock<std::uint64_t>;
using Log = std::vector<std::string>;
constexpr LockMode kShared = LockMode::shared;
constexpr LockMode kExclusive = LockMode::exclusive;

struct Request {
  std::uint64_t key;
  std::uint64_t first;
  std::uint64_t last;
  LockMode mode;
};

Task<void> hold(Table* table, Request request, std::string name, Event* until, Log* log,
                CancelToken token = {}) {
  Lock lock(*table, request.key, BlockIndex(request.first), BlockIndex(request.last), request.mode);
  const Result<void> acquired = co_await lock.acquire(token);
  if (!acquired) {
    log->push_back(name + " failed");
    co_return;
  }
  log->push_back(name);
  co_await until->wait();
}

TEST(RangeLock, lets_through_what_does_not_conflict) {
  // Other blocks, other objects, and readers side by side: parallelism is the point of ranges.
  ManualEnv world;
  Table table(world.executor);
  Event done(world.executor);
  Log log;
  Scope scope(world.executor);
  scope.spawn(hold(&table, {1, 0, 4, kExclusive}, "write", &done, &log));
  scope.spawn(hold(&table, {1, 4, 5, kExclusive}, "adjacent", &done, &log));
  scope.spawn(hold(&table, {2, 0, 4, kExclusive}, "other object", &done, &log));
  scope.spawn(hold(&table, {1, 8, 16, kShared}, "read", &done, &log));
  scope.spawn(hold(&table, {1, 10, 12, kShared}, "read too", &done, &log));
  EXPECT_THAT(log, ElementsAre("write", "adjacent", "other object", "read", "read too"));
  EXPECT_EQ(table.size(), 5u);
  done.set();
  world.run();
  EXPECT_EQ(table.size(), 0u);
}

TEST(RangeLock, a_read_waits_for_the_write_that_it_overlaps) {
  // Rule R1: reads return only committed data.
  ManualEnv world;
  Table table(world.executor);
  Event written(world.executor);
  Event done(world.executor);
  Log log;
  Scope scope(world.executor);
  scope.spawn(hold(&table, {1, 0, 4, kExclusive}, "write", &written, &log));
  scope.spawn(hold(&table, {1, 3, 8, kShared}, "read", &done, &log));
  EXPECT_THAT(log, ElementsAre("write"));
  written.set();
  world.run();
  EXPECT_THAT(log, ElementsAre("write", "read"));
  done.set();
  world.run();
}

TEST(RangeLock, a_waiting_writer_is_not_overtaken_by_readers) {
  // A stream of readers would starve it.
  ManualEnv world;
  Table table(world.executor);
  Event first(world.executor);
  Event second(world.executor);
  Event done(world.executor);
  Log log;
  Scope scope(world.executor);
  scope.spawn(hold(&table, {1, 0, 4, kShared}, "read 1", &first, &log));
  scope.spawn(hold(&table, {1, 0, 8, kExclusive}, "write", &second, &log));
  scope.spawn(hold(&table, {1, 2, 4, kShared}, "read 2", &done, &log));
  scope.spawn(hold(&table, {1, 6, 8, kShared}, "read 3", &done, &log));
  scope.spawn(hold(&table, {1, 8, 9, kShared}, "read beyond", &done, &log));
  world.run();
  EXPECT_THAT(log, ElementsAre("read 1", "read beyond"));
  first.set();
  world.run();
  EXPECT_EQ(log.back(), "write");
  second.set();
  world.run();
  EXPECT_THAT(log, ElementsAre("read 1", "read beyond", "write", "read 2", "read 3"));
  done.set();
  world.run();
}

TEST(RangeLock, a_cancelled_waiter_frees_those_behind_it) {
  // They waited for it, not for the lock that is held.
  ManualEnv world;
  Table table(world.executor);
  Event done(world.executor);
  CancelSource source(world.executor);
  Log log;
  Scope scope(world.executor);
  scope.spawn(hold(&table, {1, 0, 4, kShared}, "read 1", &done, &log));
  scope.spawn(hold(&table, {1, 0, 4, kExclusive}, "write", &done, &log, source.token()));
  scope.spawn(hold(&table, {1, 0, 4, kShared}, "read 2", &done, &log));
  source.cancel();
  world.run();
  EXPECT_THAT(log, ElementsAre("read 1", "write failed", "read 2"));
  EXPECT_EQ(table.waiting(), 0u);
  done.set();
  world.run();
}

TEST(RangeLock, can_be_tried_released_and_taken_again) {
  // Destage tries, and goes elsewhere when a client uses the range.
  ManualEnv world;
  Table table(world.executor);
  Lock first(table, 1, BlockIndex(0), BlockIndex(4), kExclusive);
  Lock second(table, 1, BlockIndex(2), BlockIndex(6), kExclusive);
  EXPECT_TRUE(first.try_acquire());
  EXPECT_FALSE(second.try_acquire());
  EXPECT_EQ(table.size(), 1u);
  first.release();
  first.release();
  EXPECT_TRUE(second.try_acquire());
  EXPECT_FALSE(first.held());
}

TEST(RangeLockDeathTest, refuses_an_empty_range) {
  // It would protect nothing while its holder believes otherwise.
  ManualEnv world;
  Table table(world.executor);
  EXPECT_DEATH(Lock(table, 1, BlockIndex(4), BlockIndex(4), kShared), "at least one block");
}

// Who is inside of which block, checked against the rule of locks.
struct Model {
  struct Block {
    int readers = 0;
    int writers = 0;
  };
  std::vector<Block> blocks = std::vector<Block>(8);
  int held = 0;

  void enter(const Request& request) {
    for (std::uint64_t i = request.first; i < request.last; ++i) {
      (request.mode == kShared ? blocks[i].readers : blocks[i].writers) += 1;
      EXPECT_LE(blocks[i].writers, 1);
      EXPECT_TRUE(blocks[i].writers == 0 || blocks[i].readers == 0);
    }
    ++held;
  }
  void leave(const Request& request) {
    for (std::uint64_t i = request.first; i < request.last; ++i) {
      (request.mode == kShared ? blocks[i].readers : blocks[i].writers) -= 1;
    }
  }
};

Task<void> visit(Executor* executor, Table* table, Request request, int turns, Model* model) {
  Lock lock(*table, request.key, BlockIndex(request.first), BlockIndex(request.last), request.mode);
  EXPECT_TRUE((co_await lock.acquire()).has_value());
  model->enter(request);
  for (int i = 0; i < turns; ++i) co_await yield(*executor);
  model->leave(request);
}

TEST(RangeLock, excludes_in_every_order_of_a_small_case) {
  // All orders of ready coroutines.
  const std::size_t orders = for_each_order([](Choose choose) {
    ManualEnv world;
    world.executor.set_choose(choose);
    Table table(world.executor, 1);
    Model model;
    Scope scope(world.executor);
    for (const Request& request :
         {Request{1, 0, 2, kShared}, Request{1, 1, 3, kExclusive}, Request{1, 0, 1, kShared},
          Request{1, 2, 4, kShared}, Request{1, 0, 4, kExclusive}}) {
      scope.spawn(visit(&world.executor, &table, request, 1, &model));
    }
    world.run();
    EXPECT_EQ(model.held, 5);
    EXPECT_EQ(table.size(), 0u);
  });
  EXPECT_GT(orders, 2u);
}

TEST(RangeLock, excludes_and_ends_in_random_crowds) {
  // Hundreds of overlapping requests, with keys that share buckets: all are served, none together.
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Rng rng(seed);
    ManualEnv world;
    world.executor.set_choose([&](std::size_t count) { return rng.below(count); });
    Table table(world.executor, 2);
    std::vector<Model> models(3);
    Scope scope(world.executor);
    for (int i = 0; i < 200; ++i) {
      const std::uint64_t first = rng.below(8);
      const Request request{rng.below(3), first, first + 1 + rng.below(8 - first),
                            rng.chance(0.5) ? kShared : kExclusive};
      scope.spawn(visit(&world.executor, &table, request, static_cast<int>(rng.below(4)),
                        &models[request.key]));
      if (rng.chance(0.3)) world.executor.step();
    }
    world.run();
    EXPECT_EQ(models[0].held + models[1].held + models[2].held, 200);
    EXPECT_EQ(table.size(), 0u);
  }
}

struct Shared {
  std::optional<Table>* table = nullptr;
  Event* done = nullptr;
  CancelSource* source = nullptr;
  Log log;
};

Task<void> own(Executor* executor, Shared* shared) {
  Event never(*executor);
  Event done(*executor);
  CancelSource source(*executor);
  std::optional<Table> table(std::in_place, *executor);
  *shared = {&table, &done, &source, {}};
  co_await never.wait();
}

Task<void> disturb(Shared* shared) {
  shared->source->cancel();
  shared->done->set();
  co_return;
}

TEST(RangeLock, survives_a_crash_at_every_step_and_in_every_order) {
  // Locks may outlive their table, held or waiting.
  Shared shared;
  const std::size_t crashes =
      for_each_crash(3, [&](ManualEnv& world, const std::vector<Scope*>& scopes) {
        scopes[0]->spawn(own(&world.executor, &shared));
        Table* const table = &**shared.table;
        scopes[1]->spawn(hold(table, {1, 0, 4, kShared}, "a", shared.done, &shared.log));
        scopes[2]->spawn(hold(table, {1, 2, 6, kExclusive}, "b", shared.done, &shared.log,
                              shared.source->token()));
        scopes[1]->spawn(hold(table, {1, 2, 3, kShared}, "c", shared.done, &shared.log));
        scopes[2]->spawn(hold(table, {1, 0, 8, kExclusive}, "d", shared.done, &shared.log));
        scopes[2]->spawn(disturb(&shared));
      });
  EXPECT_GE(crashes, 6u * 4u);
}

}  // namespace
}  // namespace sarsen
