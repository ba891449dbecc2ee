// Giving way: a coroutine that computes for long must let the others of its shard run.
//
//   YieldBudget budget(executor, limits.keys_per_turn);
//   for (const Key& key : keys) {
//     visit(key);
//     co_await budget.spend();          // gives way once per keys_per_turn
//   }
//
// After a yield, re-check what other coroutines may have changed.
#pragma once

#include <coroutine>
#include <cstdint>

#include "dataplane/runtime/executor.h"

namespace sarsen {

// co_await resumes in a later turn.
class [[nodiscard]] Yield {
 public:
  explicit Yield(Executor& executor) : executor_(executor) {}
  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> handle) { executor_.schedule(handle); }
  void await_resume() const {}

 private:
  Executor& executor_;
};

inline Yield yield(Executor& executor) {
  return Yield(executor);
}

// Counts work and gives way each time that `budget` of it was done. Counts, not time: the same run
// gives way at the same places.
class YieldBudget {
 public:
  YieldBudget(Executor& executor, std::uint64_t budget) : executor_(executor), budget_(budget) {}

  class [[nodiscard]] Spend {
   public:
    Spend(Executor& executor, bool exhausted) : executor_(executor), exhausted_(exhausted) {}
    bool await_ready() const { return !exhausted_; }
    void await_suspend(std::coroutine_handle<> handle) { executor_.schedule(handle); }
    void await_resume() const {}

   private:
    Executor& executor_;
    bool exhausted_;
  };
  // Notes `work` as done; co_await gives way when the budget is used up, and then it starts anew.
  Spend spend(std::uint64_t work = 1) {
    spent_ += work;
    const bool exhausted = spent_ >= budget_;
    if (exhausted) spent_ = 0;
    return {executor_, exhausted};
  }

 private:
  Executor& executor_;
  const std::uint64_t budget_;
  std::uint64_t spent_ = 0;
};

}  // namespace sarsen
