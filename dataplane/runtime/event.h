// Event: a flag that coroutines wait for.
//
// set() lets every present waiter and every later wait through, until reset(). A waiter that set()
// has let through stays through, even when reset() comes before it runs: re-check what the event
// stands for after the wait.
//
// Lifecycle  Outlives its waits.   Shard: one.
// Errors     wait(token): the token's reason. An event that is set wins over a cancelled token.
#pragma once

#include "dataplane/runtime/waiter.h"

namespace sarsen {

class Event {
  class WaitBase : public Waiter {
   public:
    WaitBase(Event& event, CancelToken token) : Waiter(event.executor_, token), event_(event) {}
    bool await_ready() { return event_.set_ || cancelled_before(); }
    void await_suspend(std::coroutine_handle<> handle) { wait_on(event_.waiters_, handle); }

   protected:
    ~WaitBase() = default;

   private:
    Event& event_;
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

  explicit Event(Executor& executor) : executor_(executor) {}
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void set() {
    set_ = true;
    while (!waiters_.empty()) waiters_.front().wake();
  }
  void reset() { set_ = false; }
  bool is_set() const { return set_; }

  Wait wait() { return {*this, {}}; }
  CancellableWait wait(CancelToken token) { return {*this, token}; }

 private:
  Executor& executor_;
  bool set_ = false;
  IntrusiveList<WaitBase> waiters_;
};

}  // namespace sarsen
