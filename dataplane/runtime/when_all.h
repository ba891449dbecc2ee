// when_all: runs tasks side by side and gives all of their values.
//
//   auto [local, remote] = co_await when_all(executor, append(record), send(record));
//
// The tasks start at once, in order, each until it first waits. All of them are awaited, also when
// one fails: a failure that should stop the others is told to them through a CancelToken. A void
// task gives std::monostate, unless all are void: then so is when_all.
//
// The executor is that of the tasks. The vector form is not bounded here: the caller bounds its
// size.
#pragma once

#include <coroutine>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "dataplane/base/result.h"
#include "dataplane/runtime/executor.h"
#include "dataplane/runtime/task.h"

namespace sarsen {

namespace when_all_internal {

// Counts the tasks that run; resumes the waiter when all have ended.
class Countdown : public TaskObserver {
 public:
  Countdown(const Countdown&) = delete;
  Countdown& operator=(const Countdown&) = delete;

 protected:
  explicit Countdown(Executor& executor) : executor_(executor) {}
  ~Countdown() = default;
  // `start` starts `count` tasks with this observer. False when all of them ended at once.
  template <typename Start>
  bool suspend(std::coroutine_handle<> waiter, std::size_t count, Start start) {
    waiter_ = waiter;
    running_ = count + 1;  // the one that is ours keeps the tasks from scheduling us while here
    start();
    return --running_ != 0;
  }

 private:
  void task_finished() noexcept final {
    if (--running_ == 0) executor_.schedule(waiter_);
  }
  Executor& executor_;
  std::size_t running_ = 0;
  std::coroutine_handle<> waiter_;
};

template <typename T>
using Value = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

template <typename T>
Value<T> take(Task<T>& task) {
  if constexpr (std::is_void_v<T>) {
    return {};
  } else {
    return task.take();
  }
}

template <typename... T>
class [[nodiscard]] Tuple final : public Countdown {
 public:
  Tuple(Executor& executor, Task<T>... tasks) : Countdown(executor), tasks_(std::move(tasks)...) {}

  bool await_ready() const { return false; }
  bool await_suspend(std::coroutine_handle<> waiter) {
    return suspend(waiter, sizeof...(T), [this] {
      std::apply([this](auto&... task) { (task.start(*this), ...); }, tasks_);
    });
  }
  auto await_resume() {
    if constexpr (!(std::is_void_v<T> && ...)) {
      return std::apply([](auto&... task) { return std::tuple<Value<T>...>(take(task)...); },
                        tasks_);
    }
  }

 private:
  std::tuple<Task<T>...> tasks_;
};

template <typename T>
class [[nodiscard]] Vector final : public Countdown {
 public:
  Vector(Executor& executor, std::vector<Task<T>> tasks)
      : Countdown(executor), tasks_(std::move(tasks)) {}

  bool await_ready() const { return tasks_.empty(); }
  bool await_suspend(std::coroutine_handle<> waiter) {
    return suspend(waiter, tasks_.size(), [this] {
      for (Task<T>& task : tasks_) task.start(*this);
    });
  }
  auto await_resume() {
    if constexpr (!std::is_void_v<T>) {
      std::vector<T> values;
      values.reserve(tasks_.size());
      for (Task<T>& task : tasks_) values.push_back(task.take());
      return values;
    }
  }

 private:
  std::vector<Task<T>> tasks_;
};

}  // namespace when_all_internal

// co_await gives a tuple of the values in the order of the tasks.
template <typename... T>
  requires(sizeof...(T) > 0)
when_all_internal::Tuple<T...> when_all(Executor& executor, Task<T>... tasks) {
  return {executor, std::move(tasks)...};
}

// co_await gives a vector of the values in the order of the tasks.
template <typename T>
when_all_internal::Vector<T> when_all(Executor& executor, std::vector<Task<T>> tasks) {
  return {executor, std::move(tasks)};
}

// The first error among results, in their order, or success.
template <typename T>
Result<void> first_error(const std::vector<Result<T>>& results) {
  for (const Result<T>& result : results) {
    if (!result) return fail(result.error());
  }
  return {};
}
template <typename... T>
Result<void> first_error(const std::tuple<Result<T>...>& results) {
  Result<void> first;
  const auto look = [&first](const auto& result) {
    if (first && !result) first = fail(result.error());
  };
  std::apply([&look](const auto&... result) { (look(result), ...); }, results);
  return first;
}

}  // namespace sarsen
