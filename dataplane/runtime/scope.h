// Scope: owns background coroutines; nothing runs detached (style rule 9).
//
// Lifecycle  spawn() any number; `co_await join()` waits for all of them and is part of the owner's
//            stop(). Destroying a scope with running coroutines is a bug (assert) unless the
//            executor is abandoned, when the frames are destroyed.
// Placement  The last member of its owner, so that frames die before what they use.
#pragma once

#include <coroutine>
#include <cstddef>
#include <exception>

#include "dataplane/base/intrusive_list.h"
#include "dataplane/runtime/executor.h"
#include "dataplane/runtime/task.h"

namespace sarsen {

class Scope : public ListNode {
 public:
  explicit Scope(Executor& executor) : executor_(executor) { executor.scopes_.push_back(*this); }
  ~Scope();

  // Starts `task` at once, on the caller's stack, until it first waits.
  void spawn(Task<void> task);
  // Returns when no spawned coroutine is left, including those spawned while waiting. One waiter.
  Task<void> join();
  std::size_t size() const { return size_; }

 private:
  friend class Executor;
  struct Root;  // the coroutine that drives one spawned task
  struct RootPromise;
  static Root drive(Scope& scope, Task<void> task);
  void destroy_frames();

  Executor& executor_;
  IntrusiveList<RootPromise> roots_;
  std::size_t size_ = 0;
  std::coroutine_handle<> joiner_;
};

}  // namespace sarsen
