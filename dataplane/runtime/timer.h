// Timer: calls a function when a time has come. For what is not worth a coroutine of its own: a
// deadline, an idle seal, the next run of a periodic task.
//
//   Timer idle(clock, [this] { idle_.set(); });
//   idle.arm(clock.now() + limits.idle_before_seal);
//
// The function runs in the clock's loop: it sets a flag, sets an event or cancels a source, and
// resumes no coroutine inline. It may arm the timer again.
//
// Lifecycle  Disarmed when it dies. Borrows the clock.   Shard: one.
#pragma once

#include <utility>

#include "dataplane/runtime/env.h"

namespace sarsen {

template <typename Function>
class Timer final : TimerHook, SleepOperation {
 public:
  Timer(Clock& clock, Function function)
      : SleepOperation(clock, static_cast<TimerHook&>(*this)),
        clock_(clock),
        function_(std::move(function)) {}

  // Replaces an earlier deadline. When the time has come already, the function runs at once.
  void arm(BootTime deadline) {
    disarm();
    if (deadline == kNever) return;
    if (clock_.now() >= deadline) {
      function_();
    } else {
      submit(deadline);
    }
  }
  // Idempotent. The function does not run any more.
  void disarm() { withdraw(); }
  bool armed() const { return pending(); }

 private:
  void on_timer() override { function_(); }
  Clock& clock_;
  Function function_;
};

}  // namespace sarsen
