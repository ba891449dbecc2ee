// Deadlines and sleeps that can be ended.
//
//   auto reply = co_await with_timeout(clock, executor, seconds(5),
//                                      [&](CancelToken token) { return ask(peer, token); });
//
// Cooperative: at the deadline the token is cancelled with `timed_out`, and then the task is
// awaited, because frames and buffers of a task that was left behind would still be in use. So the
// deadline holds as far as every wait inside takes the token, or is short. What the task answers is
// what the caller gets: a task that finished in spite of the deadline has finished.
#pragma once

#include <algorithm>
#include <type_traits>
#include <utility>

#include "dataplane/runtime/cancel.h"
#include "dataplane/runtime/env.h"
#include "dataplane/runtime/task.h"
#include "dataplane/runtime/timer.h"

namespace sarsen {

// The time by which something is to end. Handed down, so that a request has one deadline and not
// one per layer; the default is never.
class Deadline {
 public:
  Deadline() = default;
  explicit Deadline(BootTime time) : time_(time) {}
  static Deadline after(const Clock& clock, Duration duration) {
    return Deadline(clock.now() + duration);
  }

  BootTime time() const { return time_; }
  bool is_never() const { return time_ == kNever; }
  bool passed(const Clock& clock) const { return clock.now() >= time_; }
  // Zero once it has passed.
  Duration remaining(const Clock& clock) const {
    return passed(clock) ? Duration(0) : time_ - clock.now();
  }
  Deadline earlier(Deadline other) const { return Deadline(std::min(time_, other.time_)); }
  bool operator==(const Deadline&) const = default;

 private:
  BootTime time_ = kNever;
};

// co_await gives Result<void>: success when the time came, the token's reason when it was first.
class [[nodiscard]] CancellableSleep final : CancelHook {
 public:
  CancellableSleep(Clock& clock, BootTime time, CancelToken token)
      : operation_(clock, time), token_(token) {}
  bool await_ready() {
    cancelled_ = token_.cancelled();
    return cancelled_ || operation_.await_ready();
  }
  void await_suspend(std::coroutine_handle<> handle) {
    token_.attach(*this);
    operation_.await_suspend(handle);
  }
  Result<void> await_resume() {
    unlink();
    if (cancelled_) return fail(token_.error());
    return {};
  }

 private:
  void on_cancel() override {
    operation_.cancel();
    // False when the time came first and only the coroutine's turn did not yet.
    cancelled_ = !operation_.await_resume();
  }
  SleepOperation operation_;
  CancelToken token_;
  bool cancelled_ = false;
};

inline CancellableSleep sleep_until(Clock& clock, BootTime time, CancelToken token) {
  return {clock, time, token};
}
inline CancellableSleep sleep_for(Clock& clock, Duration duration, CancelToken token) {
  return {clock, clock.now() + duration, token};
}

namespace timeout_internal {

template <typename MakeTask>
using TaskOf = std::invoke_result_t<MakeTask&, CancelToken>;

template <typename MakeTask>
TaskOf<MakeTask> run(Clock* clock, Executor* executor, Deadline deadline, MakeTask make_task,
                     CancelToken parent) {
  CancelSource source(*executor, parent);
  Timer timer(*clock, [&source] { source.cancel(RuntimeError::timed_out); });
  timer.arm(deadline.time());
  co_return co_await make_task(source.token());
}

}  // namespace timeout_internal

// Runs make_task(token), a Task<T>, and gives its T. `make_task` is kept until the task has ended.
// The token is also cancelled when `parent` is.
template <typename MakeTask>
timeout_internal::TaskOf<MakeTask> with_deadline(Clock& clock, Executor& executor,
                                                 Deadline deadline, MakeTask make_task,
                                                 CancelToken parent = {}) {
  return timeout_internal::run(&clock, &executor, deadline, std::move(make_task), parent);
}

// The time runs from this call.
template <typename MakeTask>
timeout_internal::TaskOf<MakeTask> with_timeout(Clock& clock, Executor& executor, Duration duration,
                                                MakeTask make_task, CancelToken parent = {}) {
  return timeout_internal::run(&clock, &executor, Deadline::after(clock, duration),
                               std::move(make_task), parent);
}

}  // namespace sarsen
