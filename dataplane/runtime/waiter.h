// Waiter: one suspended coroutine on the wait list of one primitive. The base of the awaitables of
// event.h, semaphore.h, queue.h and the others; not for use outside this folder's primitives.
//
// A waiter lives in the frame that waits and goes through three states, forward only:
//
//   idle -> waiting    await_suspend put it on a list
//   waiting -> woken   wake() or fail() took it off and scheduled the coroutine, once
//
// The outcome is decided when it is woken, not when the coroutine runs: a cancellation that comes
// after a grant changes nothing, and what was granted belongs to the waiter.
//
// Abandonment  When the executor is abandoned, frames die in any order: a waiter may outlive its
//              primitive, or the other way round. Neither destructor touches the other side but
//              through the list links, which both sides may cut. Nothing is scheduled any more.
#pragma once

#include <coroutine>
#include <optional>

#include "dataplane/base/assert.h"
#include "dataplane/base/intrusive_list.h"
#include "dataplane/base/result.h"
#include "dataplane/runtime/cancel.h"
#include "dataplane/runtime/error.h"
#include "dataplane/runtime/executor.h"

namespace sarsen {

class Waiter : public ListNode {
 public:
  explicit Waiter(Executor& executor, CancelToken token = {})
      : executor_(executor), token_(token), hook_(*this) {}
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;
  // The wait succeeded: off the list, and the coroutine runs in a later turn.
  void wake() {
    SARSEN_ASSERT(waiting_, "a waiter is woken once");
    unlink();
    hook_.unlink();
    waiting_ = false;
    if (!executor_.abandoned()) executor_.schedule(handle_);
  }
  // The wait failed.
  void fail(RuntimeError reason) {
    failure_ = reason;
    wake();
  }

 protected:
  ~Waiter() {
    SARSEN_ASSERT(!waiting_ || executor_.abandoned(),
                  "a waiting coroutine is destroyed only in a simulated crash");
  }
  // For await_ready: when the token is cancelled the wait has failed before it began.
  bool cancelled_before() {
    if (!token_.cancelled()) return false;
    failure_ = token_.reason();
    return true;
  }
  // For await_ready: the primitive does not take this waiter.
  void refuse(RuntimeError reason) { failure_ = reason; }
  // For await_suspend. `list` is the primitive's.
  template <typename Derived>
  void wait_on(IntrusiveList<Derived>& list, std::coroutine_handle<> handle) {
    list.push_back(static_cast<Derived&>(*this));
    handle_ = handle;
    waiting_ = true;
    token_.attach(hook_);
  }
  const std::optional<RuntimeError>& failure() const { return failure_; }
  Result<void> outcome() const {
    if (failure_) return ::sarsen::fail(make_error(*failure_));
    return {};
  }
  // The token was cancelled and this waiter has left the list: those behind it may be able to go
  // on.
  virtual void withdrawn() {}

 private:
  struct Hook final : CancelHook {
    explicit Hook(Waiter& owner) : waiter(owner) {}
    void on_cancel() override {
      waiter.fail(waiter.token_.reason());
      waiter.withdrawn();
    }
    Waiter& waiter;
  };

  Executor& executor_;
  CancelToken token_;
  Hook hook_;
  std::coroutine_handle<> handle_;
  bool waiting_ = false;
  std::optional<RuntimeError> failure_;
};

}  // namespace sarsen
