#include "dataplane/runtime/scope.h"

#include <utility>

namespace sarsen {

struct Scope::RootPromise : ListNode {
  RootPromise(Scope& owner, Task<void>&) : scope(owner) {}
  Root get_return_object() noexcept;
  std::suspend_never initial_suspend() noexcept {
    scope.roots_.push_back(*this);
    ++scope.size_;
    return {};
  }
  std::suspend_never final_suspend() noexcept {
    unlink();
    if (--scope.size_ == 0 && scope.joiner_) {
      scope.executor_.schedule(std::exchange(scope.joiner_, {}));
    }
    return {};
  }
  void return_void() const noexcept {}
  [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); }

  Scope& scope;
};

struct Scope::Root {
  using promise_type = RootPromise;
};

Scope::Root Scope::RootPromise::get_return_object() noexcept {
  return {};
}

// The promise keeps the scope, and a scope outlives its frames.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-reference-coroutine-parameters)
Scope::Root Scope::drive(Scope& scope, Task<void> task) {
  (void)scope;  // taken by the promise
  co_await std::move(task);
}

void Scope::spawn(Task<void> task) {
  if (executor_.abandoned()) return;  // spawned by a destructor in a simulated crash: never starts
  drive(*this, std::move(task));
}

Task<void> Scope::join() {
  struct Wait {
    Scope& scope;
    bool await_ready() const { return scope.size_ == 0; }
    void await_suspend(std::coroutine_handle<> waiter) {
      SARSEN_ASSERT(!scope.joiner_, "a scope has one joiner");
      scope.joiner_ = waiter;
    }
    void await_resume() const {}
  };
  while (size_ != 0) co_await Wait{*this};
}

void Scope::destroy_frames() {
  while (!roots_.empty()) {
    RootPromise& root = roots_.pop_front();
    --size_;
    std::coroutine_handle<RootPromise>::from_promise(root).destroy();
  }
}

Scope::~Scope() {
  if (executor_.abandoned()) destroy_frames();
  SARSEN_ASSERT(size_ == 0, "a scope is joined before it is destroyed");
}

void Executor::abandon_scopes() {
  abandoned_ = true;
  // Newest first: frames of inner objects may use outer ones. A frame that dies may own scopes.
  IntrusiveList<Scope> done;
  while (!scopes_.empty()) {
    Scope& scope = scopes_.back();
    scope.unlink();
    done.push_back(scope);
    scope.destroy_frames();
  }
}

}  // namespace sarsen
