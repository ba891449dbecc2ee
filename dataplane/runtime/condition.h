// Condition: a place to wait for a change of state that other code announces.
//
// Stores nothing: a notification without a waiter is lost, so the state is kept beside it and
// checked before each wait. wait_until() does that; prefer it to wait().
//
//   Task<void> Journal::wait_for_room() { return room_.wait_until([this] { return bytes_free_ > 0;
//   }); }
//
// notify_one() wakes the coroutine that has waited longest. Between the notification and its turn
// another coroutine may have changed the state again: wait_until() then waits on, at the end of the
// queue.
//
// Lifecycle  Outlives its waits.   Shard: one.
// Errors     Waits with a token: the token's reason. A predicate that holds wins over it.
#pragma once

#include <cstddef>
#include <utility>

#include "dataplane/runtime/task.h"
#include "dataplane/runtime/waiter.h"

namespace sarsen {

class Condition {
  class WaitBase : public Waiter {
   public:
    WaitBase(Condition& condition, CancelToken token)
        : Waiter(condition.executor_, token), condition_(condition) {}
    bool await_ready() { return cancelled_before(); }
    void await_suspend(std::coroutine_handle<> handle) { wait_on(condition_.waiters_, handle); }

   protected:
    ~WaitBase() = default;

   private:
    Condition& condition_;
  };

 public:
  struct [[nodiscard]] Wait final : WaitBase {
    using WaitBase::WaitBase;
    void await_resume() const {}
  };
  struct [[nodiscard]] CancellableWait final : WaitBase {
    using WaitBase::WaitBase;
    Result<void> await_resume() const { return outcome(); }
  };

  explicit Condition(Executor& executor) : executor_(executor) {}
  Condition(const Condition&) = delete;
  Condition& operator=(const Condition&) = delete;

  void notify_one() {
    if (!waiters_.empty()) waiters_.front().wake();
  }
  void notify_all() {
    while (!waiters_.empty()) waiters_.front().wake();
  }
  bool has_waiters() const { return !waiters_.empty(); }

  // Until the next notification, whatever the state.
  Wait wait() { return {*this, {}}; }
  CancellableWait wait(CancelToken token) { return {*this, token}; }

  // Until predicate() holds, which is true when this returns and no other coroutine ran in between.
  template <typename Predicate>
  Task<void> wait_until(Predicate predicate) {
    while (!predicate()) co_await wait();
  }
  template <typename Predicate>
  Task<Result<void>> wait_until(Predicate predicate, CancelToken token) {
    while (!predicate()) SARSEN_CO_TRY(co_await wait(token));
    co_return Result<void>();
  }

 private:
  Executor& executor_;
  IntrusiveList<WaitBase> waiters_;
};

}  // namespace sarsen
