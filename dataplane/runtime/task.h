// Task<T>: a lazy coroutine that yields one T to the one coroutine that awaits it.
//
// Lifecycle  Created suspended; started by `co_await std::move(task)`, Scope::spawn() or
// when_all();
//            its frame dies with the Task. A Task that has started is destroyed unfinished only
//            when its executor is abandoned (a simulated crash), never in production.
// Shard      Belongs to one executor from start to end; nothing here is thread-safe.
// Errors     Are values (Result<T>). An exception that leaves a coroutine is a bug and terminates.
//
// Rules for coroutines (style rule 8): parameters by value; no lambda coroutine that captures;
// after each wait re-check what may have changed; no co_await in a catch block.
#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

#include "dataplane/base/assert.h"

namespace sarsen {

template <typename T = void>
class Task;

// Hears that a task ended which was started by Task::start(). For primitives that run tasks side by
// side (when_all.h, scope.h); other code awaits.
class TaskObserver {
 public:
  // Called from the task's final suspension point. May destroy the task.
  virtual void task_finished() noexcept = 0;

 protected:
  ~TaskObserver() = default;
};

namespace task_internal {

struct FinalAwaiter {
  bool await_ready() const noexcept { return false; }
  template <typename Promise>
  std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> finished) noexcept {
    // In locals, because the observer may destroy the frame.
    const auto continuation = finished.promise().continuation;
    TaskObserver* const observer = finished.promise().observer;
    if (continuation) return continuation;
    observer->task_finished();
    return std::noop_coroutine();
  }
  void await_resume() const noexcept {}
};

// Of a started task exactly one of the two is set.
struct PromiseBase {
  std::coroutine_handle<> continuation;
  TaskObserver* observer = nullptr;

  bool started() const { return continuation || observer != nullptr; }

  std::suspend_always initial_suspend() const noexcept { return {}; }
  FinalAwaiter final_suspend() const noexcept { return {}; }
  [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); }
};

template <typename T>
struct Promise : PromiseBase {
  std::optional<T> value;

  Task<T> get_return_object();
  template <typename U = T>  // so that `co_return {}` gives a T
  void return_value(U&& result) {
    value.emplace(std::forward<U>(result));
  }
  T take() { return std::move(*value); }
};

template <>
struct Promise<void> : PromiseBase {
  Task<void> get_return_object();
  void return_void() const noexcept {}
  void take() const noexcept {}
};

}  // namespace task_internal

template <typename T>
class [[nodiscard]] Task {
 public:
  using promise_type = task_internal::Promise<T>;

  Task() = default;
  explicit Task(std::coroutine_handle<promise_type> frame) : frame_(frame) {}
  Task(Task&& other) noexcept : frame_(std::exchange(other.frame_, {})) {}
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      destroy();
      frame_ = std::exchange(other.frame_, {});
    }
    return *this;
  }
  ~Task() { destroy(); }

  bool valid() const { return static_cast<bool>(frame_); }

  struct Awaiter {
    std::coroutine_handle<promise_type> frame;
    bool await_ready() const noexcept { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> waiter) noexcept {
      frame.promise().continuation = waiter;
      return frame;
    }
    T await_resume() { return frame.promise().take(); }
  };
  Awaiter operator co_await() && {
    SARSEN_ASSERT(frame_ && !frame_.promise().started(), "a task is started once");
    return Awaiter{frame_};
  }

  // For primitives that run tasks side by side: runs the task on the caller's stack until it first
  // waits; `observer` hears of its end and then calls take() once.
  void start(TaskObserver& observer) {
    SARSEN_ASSERT(frame_ && !frame_.promise().started(), "a task is started once");
    frame_.promise().observer = &observer;
    frame_.resume();
  }
  T take() {
    SARSEN_ASSERT(frame_ && frame_.done(), "the value of a task is taken at its end");
    return frame_.promise().take();
  }

 private:
  void destroy() {
    if (frame_) std::exchange(frame_, {}).destroy();
  }
  std::coroutine_handle<promise_type> frame_;
};

namespace task_internal {

template <typename T>
Task<T> Promise<T>::get_return_object() {
  return Task<T>(std::coroutine_handle<Promise>::from_promise(*this));
}
inline Task<void> Promise<void>::get_return_object() {
  return Task<void>(std::coroutine_handle<Promise>::from_promise(*this));
}

}  // namespace task_internal
}  // namespace sarsen
