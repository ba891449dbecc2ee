// Periodic: runs a background task again and again: every period, and when asked.
//
//   Periodic scrub_(clock, executor, seconds(10), [this](CancelToken token) { return scrub(token);
//   });
//
// Level-triggered: trigger() means "there may be something to do", not "do one thing". Triggers
// that come while the task runs make it run once more, however many they were; the task looks at
// the state and does what it finds. Runs never overlap. A period is counted from the end of a run.
//
// Lifecycle  start() once; `co_await stop()` cancels the task's token, awaits the run in progress,
// and
//            no other follows. The destructor asserts that it was stopped, if it was started,
//            unless the executor is abandoned.
// Shard      One.   Borrows clock and executor.
#pragma once

#include <functional>
#include <utility>

#include "dataplane/runtime/cancel.h"
#include "dataplane/runtime/env.h"
#include "dataplane/runtime/event.h"
#include "dataplane/runtime/scope.h"
#include "dataplane/runtime/timer.h"

namespace sarsen {

class Periodic {
 public:
  using MakeTask = std::function<Task<void>(CancelToken)>;

  // A period that is zero means: only when triggered.
  Periodic(Clock& clock, Executor& executor, Duration period, MakeTask make_task)
      : clock_(clock),
        period_(period),
        make_task_(std::move(make_task)),
        stopping_(executor),
        due_(executor),
        timer_(clock, SetEvent{&due_}),
        scope_(executor) {}

  // The first run comes after one period, or when triggered.
  void start() { scope_.spawn(run()); }
  // Before start(): remembered.
  void trigger() { due_.set(); }
  Task<void> stop() {
    stopping_.cancel(RuntimeError::stopped);
    co_await scope_.join();
  }

 private:
  struct SetEvent {
    Event* event;
    void operator()() const { event->set(); }
  };

  Task<void> run() {
    while (true) {
      if (period_ > Duration(0)) timer_.arm(clock_.now() + period_);
      const Result<void> due = co_await due_.wait(stopping_.token());
      if (!due || stopping_.cancelled()) break;
      due_.reset();
      timer_.disarm();
      co_await make_task_(stopping_.token());
    }
    timer_.disarm();
  }

  Clock& clock_;
  const Duration period_;
  MakeTask make_task_;
  CancelSource stopping_;
  Event due_;
  Timer<SetEvent> timer_;
  Scope scope_;
};

}  // namespace sarsen
