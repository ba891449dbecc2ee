#include "dataplane/runtime/uring/reactor.h"

#include <thread>

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>

#include "dataplane/runtime/scope.h"
#include "dataplane/runtime/yield.h"
#include "tests/unit/runtime/uring/uring_testing.h"

namespace sarsen {
namespace {

Task<void> sleep_for(Reactor& reactor, Duration duration, bool& came) {
  came = co_await reactor.sleep(duration);
}

// Leases and timeouts are decided on this clock.
TEST(Reactor, a_sleep_ends_at_or_after_its_deadline) {
  const auto reactor = make_reactor();
  const BootTime begin = reactor->now();
  bool came = false;
  reactor->run_task(sleep_for(*reactor, milliseconds(5), came));
  EXPECT_TRUE(came);
  EXPECT_GE((reactor->now() - begin).value, milliseconds(5).value);
}

Task<void> wait_on(SleepOperation& sleep, bool& came) {
  came = co_await sleep;
}

Task<void> cancel_a_long_sleep(Reactor& reactor, bool& came) {
  SleepOperation sleep = reactor.sleep(seconds(3600));
  Scope scope(reactor);
  scope.spawn(wait_on(sleep, came));
  sleep.cancel();
  co_await scope.join();
}

// Every wait can be ended; a stop must not hang on an hour of back-off.
TEST(Reactor, a_cancelled_sleep_ends_at_once_and_says_so) {
  const auto reactor = make_reactor();
  bool came = true;
  reactor->run_task(cancel_a_long_sleep(*reactor, came));
  EXPECT_FALSE(came);
}

// An idle process must use no processor: no polling, no ticks.
TEST(Reactor, makes_no_turns_while_there_is_nothing_to_do) {
  const auto reactor = make_reactor();
  bool came = false;
  reactor->run_task(sleep_for(*reactor, milliseconds(200), came));
  EXPECT_LE(reactor->counters().turns, 4u);
  EXPECT_EQ(reactor->counters().spins, 0u);
}

// On cores that belong to the shard alone it looks for work before it blocks, and then does block.
TEST(Reactor, spins_for_its_window_only_and_only_if_told_to) {
  ReactorOptions options;
  options.spin_window = microseconds(50);
  const auto reactor = make_reactor(options);
  bool came = false;
  reactor->run_task(sleep_for(*reactor, milliseconds(50), came));
  EXPECT_GE(reactor->counters().spins, 1u);
  EXPECT_GE(reactor->counters().waits, 1u);
  EXPECT_LE(reactor->counters().turns, 6u);
}

Task<void> hog(Reactor& reactor, Duration duration) {
  const BootTime end = reactor.now() + duration;
  while (reactor.now() < end) {
  }
  co_return;
}

// A turn that takes long stops heartbeats and I/O of a whole shard; somebody must see it.
TEST(Reactor, a_turn_that_stalls_is_counted_and_reported_with_its_length) {
  ReactorOptions options;
  options.stall_threshold = milliseconds(10);
  std::vector<Duration> reported;
  options.on_stall = [&](Duration length) { reported.push_back(length); };
  const auto reactor = make_reactor(options);
  Scope scope(*reactor);
  Task<void> hogging = hog(*reactor, milliseconds(15));
  // The first part of a task runs before the loop; give it a turn of its own.
  struct Later {
    static Task<void> run(Reactor& on, Task<void> inner) {
      co_await Yield(on);
      co_await std::move(inner);
      on.stop();
    }
  };
  scope.spawn(Later::run(*reactor, std::move(hogging)));
  reactor->run();
  ASSERT_GE(reported.size(), 1u);
  EXPECT_GE(reactor->counters().stall_longest.value, milliseconds(15).value);
  EXPECT_EQ(reactor->counters().stalls, reported.size());
}

// Shutdown comes from another thread or a signal handler while the shard sleeps.
TEST(Reactor, stop_from_another_thread_wakes_a_sleeping_shard) {
  const auto reactor = make_reactor();
  std::thread stopper([&] { reactor->stop(); });
  reactor->run();
  stopper.join();
  reactor->stop();
  reactor->run();  // a stop before run() is not lost
}

// Work that another thread brings exactly between the shard's last look and its sleep.
class LateWork final : public WorkSource {
 public:
  explicit LateWork(Reactor& reactor) : reactor_(reactor) { reactor.add_source(*this); }
  bool pending() const override { return !drained_ && ++looks_ > 1; }
  void drain() override {
    drained_ = true;
    reactor_.stop();
  }

 private:
  Reactor& reactor_;
  mutable int looks_ = 0;
  bool drained_ = false;
};

// A shard that slept over it would wake when something else happens: minutes later, or never.
TEST(Reactor, work_that_arrives_while_the_shard_falls_asleep_is_not_slept_over) {
  const auto reactor = make_reactor();
  LateWork work(*reactor);
  bool came = false;
  Scope scope(*reactor);
  scope.spawn(sleep_for(*reactor, milliseconds(100), came));
  reactor->run();
  EXPECT_EQ(reactor->counters().waits, 0u);
  EXPECT_FALSE(came);
  struct End {
    static Task<void> run(Reactor& on, Scope& sleepers) {
      co_await sleepers.join();
      on.stop();
    }
  };
  Scope end(*reactor);
  end.spawn(End::run(*reactor, scope));
  reactor->run();
}

Task<void> many_no_operations(Reactor& reactor, int count) {
  Scope scope(reactor);
  for (int i = 0; i < count; ++i) scope.spawn(no_operation(reactor));
  co_await scope.join();
}

// A burst larger than the submission queue is an ordinary thing.
TEST(Reactor, takes_more_submissions_in_a_turn_than_its_queue_has_entries) {
  ReactorOptions options;
  options.submission_entries = 4;
  options.completion_entries = 8;
  const auto reactor = make_reactor(options);
  reactor->run_task(many_no_operations(*reactor, 1000));
  EXPECT_EQ(reactor->outstanding(), 0u);
  EXPECT_EQ(reactor->counters().submissions, 1001u);  // and the wake-up poll
}

// One system call per batch is what the loop is for.
TEST(Reactor, submits_what_a_turn_prepared_with_one_system_call) {
  const auto reactor = make_reactor();
  reactor->run_task(many_no_operations(*reactor, 100));
  EXPECT_LE(reactor->counters().system_calls, 2u);
}

Task<void> yield_until(Reactor& reactor, const bool& done, int& yields) {
  while (!done) {
    co_await Yield(reactor);
    ++yields;
  }
}

Task<void> yield_beside_a_sleep(Reactor& reactor, int& yields) {
  bool came = false;
  Scope scope(reactor);
  scope.spawn(sleep_for(reactor, milliseconds(2), came));
  scope.spawn(yield_until(reactor, came, yields));
  co_await scope.join();
}

// A coroutine that always has more to do must not keep timers and I/O from coming.
TEST(Reactor, a_coroutine_that_yields_for_ever_starves_nobody) {
  const auto reactor = make_reactor();
  int yields = 0;
  reactor->run_task(yield_beside_a_sleep(*reactor, yields));
  EXPECT_GT(yields, 0);
}

Task<void> poll_for_ever(Reactor& reactor, int descriptor, RingResult& result) {
  result = co_await RingOperation(reactor, [descriptor](io_uring_sqe& entry) {
    io_uring_prep_poll_add(&entry, descriptor, POLLIN);
  });
}

// run() ends only when no completion can arrive any more: frames must not die under the kernel.
TEST(Reactor, run_waits_for_submissions_that_are_in_flight) {
  const auto reactor = make_reactor();
  const int descriptor = eventfd(0, EFD_CLOEXEC);
  RingResult result;
  Scope scope(*reactor);
  scope.spawn(poll_for_ever(*reactor, descriptor, result));
  reactor->stop();
  std::thread writer([&] {
    const std::uint64_t one = 1;
    EXPECT_EQ(write(descriptor, &one, sizeof(one)), ssize_t{sizeof(one)});
  });
  reactor->run();
  writer.join();
  close(descriptor);
  EXPECT_EQ(result.value, POLLIN);
}

std::atomic<int> signals_seen{0};

// A signal that interrupts the wait is not an event of the program.
TEST(Reactor, goes_on_after_a_signal) {
#if __has_feature(thread_sanitizer)
  GTEST_SKIP()
      << "ThreadSanitizer runs handlers only in calls it intercepts; io_uring_enter is none";
#endif
  struct sigaction action{};
  action.sa_handler = [](int) { signals_seen.fetch_add(1); };
  sigaction(SIGUSR1, &action, nullptr);
  const auto reactor = make_reactor();
  const pthread_t self = pthread_self();
  std::thread sender([&] {
    pthread_kill(self, SIGUSR1);
    while (signals_seen.load() == 0) std::this_thread::yield();
    reactor->stop();
  });
  reactor->run();
  sender.join();
  EXPECT_EQ(signals_seen.load(), 1);
}

// Many images and peers may need more descriptors than the table has slots.
TEST(Reactor, a_full_file_table_falls_back_to_plain_descriptors) {
  ReactorOptions options;
  options.registered_files = 1;
  const auto reactor = make_reactor(options);
  const RingFile first(*reactor, dup(0));
  const RingFile second(*reactor, dup(0));
  io_uring_sqe entry{};
  first.select(entry);
  EXPECT_TRUE(entry.flags & IOSQE_FIXED_FILE);
  io_uring_sqe other{};
  second.select(other);
  EXPECT_FALSE(other.flags & IOSQE_FIXED_FILE);
  EXPECT_EQ(other.fd, second.descriptor());
}

// Operators of low-latency clusters give cores to shards.
TEST(Reactor, pins_its_thread_to_the_cpu_it_was_given) {
  std::thread([] {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
    unsigned last = 0;
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &allowed)) last = cpu;
    }
    ReactorOptions options;
    options.thread.cpu = last;
    const auto reactor = make_reactor(options);
    ASSERT_TRUE(reactor->attach());
    EXPECT_EQ(sched_getcpu(), static_cast<int>(last));
  }).join();
}

// A wrong core set is told apart from everything else that can go wrong at start-up.
TEST(Reactor, a_cpu_that_does_not_exist_is_an_error_that_names_it) {
  ReactorOptions options;
  options.thread.cpu = 1023;
  const auto reactor = make_reactor(options);
  const auto attached = reactor->attach();
  ASSERT_FALSE(attached);
  EXPECT_NE(attached.error().message().find("CPU 1023"), std::string::npos)
      << attached.error().message();
}

// Real-time scheduling is refused with what the system must allow, or takes effect.
TEST(Reactor, real_time_scheduling_takes_effect_or_says_what_it_needs) {
  std::thread([] {
    ReactorOptions options;
    options.thread.scheduling = SchedulingPolicy::round_robin;
    options.thread.realtime_priority = 3;
    const auto reactor = make_reactor(options);
    if (const auto attached = reactor->attach()) {
      sched_param parameters{};
      int policy = 0;
      pthread_getschedparam(pthread_self(), &policy, &parameters);
      EXPECT_EQ(policy, SCHED_RR);
      EXPECT_EQ(parameters.sched_priority, 3);
    } else {
      EXPECT_NE(attached.error().message().find("CAP_SYS_NICE"), std::string::npos);
    }
  }).join();
}

}  // namespace
}  // namespace sarsen
