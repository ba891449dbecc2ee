#include "dataplane/runtime/uring/timer_heap.h"

#include <algorithm>
#include <deque>

#include <gtest/gtest.h>

#include "dataplane/base/rng.h"

namespace sarsen {
namespace {

// A clock whose sleeps are never submitted: the tests put them into the heap themselves.
class NoClock final : public Clock {
 public:
  BootTime now() const override { return BootTime(0); }
  std::int64_t wall_time_ns() const override { return 0; }

 private:
  void submit(SleepOperation&) override {}
  void withdraw(SleepOperation&, bool) override {}
};

// A heap that loses or swaps a sleep under cancellations makes a deadline silently never come.
TEST(TimerHeap, gives_every_sleep_that_was_not_removed_in_order_of_deadlines) {
  NoClock clock;
  Rng rng(7);
  for (int round = 0; round < 50; ++round) {
    TimerHeap heap;
    std::deque<SleepOperation> sleeps;
    std::vector<std::int64_t> expected;
    for (int i = 0; i < 200; ++i) {
      sleeps.emplace_back(clock, BootTime(static_cast<std::int64_t>(rng.below(100))));
      heap.insert(sleeps.back());
    }
    for (auto& sleep : sleeps) {
      if (rng.chance(0.4)) {
        heap.remove(sleep);
      } else {
        expected.push_back(sleep.deadline().value);
      }
    }
    std::sort(expected.begin(), expected.end());
    std::vector<std::int64_t> given;
    while (SleepOperation* due = heap.pop_due(BootTime(1000))) {
      given.push_back(due->deadline().value);
    }
    EXPECT_EQ(given, expected);
    EXPECT_TRUE(heap.empty());
  }
}

// A sleep that ends early breaks every timeout built on it.
TEST(TimerHeap, gives_nothing_before_its_deadline) {
  NoClock clock;
  TimerHeap heap;
  SleepOperation sleep(clock, BootTime(10));
  heap.insert(sleep);
  EXPECT_EQ(heap.pop_due(BootTime(9)), nullptr);
  EXPECT_EQ(heap.pop_due(BootTime(10)), &sleep);
}

}  // namespace
}  // namespace sarsen
