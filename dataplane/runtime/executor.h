// Executor: the run queue of one shard, the only place where coroutines are resumed from.
//
// Implemented by the io_uring reactor (runtime/uring) and by the simulator (tests/sim), which draws
// the order of ready coroutines from its seed. Code must not rely on any order between two
// coroutines that became ready in the same turn.
#pragma once

#include <coroutine>

#include "dataplane/base/intrusive_list.h"

namespace sarsen {

class Scope;

class Executor {
 public:
  Executor() = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  virtual ~Executor() = default;

  // Resumes `handle` on this shard in a later turn. Called from this shard only, and not any more
  // once the executor is abandoned: the coroutine may die before its turn.
  virtual void schedule(std::coroutine_handle<> handle) = 0;

  // True once a simulated crash tears this shard down. Frames then die in any order, so destructors
  // skip their "was stopped" asserts, touch no other object through a plain pointer or reference,
  // and schedule nothing.
  bool abandoned() const { return abandoned_; }

 protected:
  friend class Scope;
  // Marks the executor abandoned and destroys every coroutine of every scope, newest scope first.
  // Called from outside of every coroutine; the implementation has emptied its run queue before.
  void abandon_scopes();

 private:
  IntrusiveList<Scope> scopes_;
  bool abandoned_ = false;
};

}  // namespace sarsen
