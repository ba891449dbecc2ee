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

// Awaited once: `start` starts `count` tasks with this observer; resumes when all have ended.
template <typename Start>
class Join final : public TaskObserver {
 public:
  Join(Executor& executor, std::size_t count, Start start)
      : executor_(executor), running_(count + 1), start_(start) {}

  bool await_ready() const { return false; }
  bool await_suspend(std::coroutine_handle<> waiter) {
    waiter_ = waiter;
    start_(*this);
    // The count of one that is ours kept the tasks from scheduling us while we were still here.
    return --running_ != 0;
  }
  void await_resume() const {}
  void task_finished() noexcept override {
    if (--running_ == 0) executor_.schedule(waiter_);
  }

 private:
  Executor& executor_;
  std::size_t running_;
  Start start_;
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

}  // namespace when_all_internal

template <typename... T>
  requires(sizeof...(T) > 0 && !(std::is_void_v<T> && ...))
Task<std::tuple<when_all_internal::Value<T>...>> when_all(Executor& executor, Task<T>... tasks) {
  co_await when_all_internal::Join(executor, sizeof...(T),
                                   [&](TaskObserver& observer) { (tasks.start(observer), ...); });
  co_return std::tuple<when_all_internal::Value<T>...>(when_all_internal::take(tasks)...);
}

template <typename... T>
  requires(sizeof...(T) > 0 && (std::is_void_v<T> && ...))
Task<void> when_all(Executor& executor, Task<T>... tasks) {
  co_await when_all_internal::Join(executor, sizeof...(T),
                                   [&](TaskObserver& observer) { (tasks.start(observer), ...); });
}

// Values in the order of the tasks.
template <typename T>
  requires(!std::is_void_v<T>)
Task<std::vector<T>> when_all(Executor& executor, std::vector<Task<T>> tasks) {
  co_await when_all_internal::Join(executor, tasks.size(), [&](TaskObserver& observer) {
    for (Task<T>& task : tasks) task.start(observer);
  });
  std::vector<T> values;
  values.reserve(tasks.size());
  for (Task<T>& task : tasks) values.push_back(task.take());
  co_return values;
}

inline Task<void> when_all(Executor& executor, std::vector<Task<void>> tasks) {
  co_await when_all_internal::Join(executor, tasks.size(), [&](TaskObserver& observer) {
    for (Task<void>& task : tasks) task.start(observer);
  });
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
