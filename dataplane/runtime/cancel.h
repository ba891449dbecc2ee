// Cooperative cancellation: a CancelSource says "stop", CancelTokens hear it.
//
// A token is a pointer to its source, cheap to copy and to pass by value. A default token is never
// cancelled. Cancelling runs the attached hooks at once, in the order they were attached; hooks
// only take waiters off lists and schedule them, so no coroutine runs inside cancel().
//
// Lifecycle  The source outlives every use of its tokens; asserted in its destructor, unless the
//            executor is abandoned. Children (sources made from a token) follow their parent.
// Shard      One shard owns a source, its tokens and its hooks.
// Errors     token.error() says why: cancelled (asked for), timed_out (a deadline), stopped (the
//            service ends). The first reason stays.
#pragma once

#include <utility>

#include "dataplane/base/assert.h"
#include "dataplane/base/intrusive_list.h"
#include "dataplane/runtime/error.h"
#include "dataplane/runtime/executor.h"

namespace sarsen {

class CancelSource;

// What runs when a token is cancelled. Lives in a frame; detaches when it dies or by unlink().
class CancelHook : public ListNode {
 public:
  // Must not resume a coroutine inline, nor destroy the source.
  virtual void on_cancel() = 0;

 protected:
  ~CancelHook() = default;
};

class CancelToken {
 public:
  CancelToken() = default;

  bool cancelled() const;
  // Why. Only for a cancelled token.
  RuntimeError reason() const;
  Error error() const { return make_error(reason()); }
  // The token must not be cancelled yet.
  void attach(CancelHook& hook) const;

 private:
  friend class CancelSource;
  explicit CancelToken(CancelSource& source) : source_(&source) {}
  CancelSource* source_ = nullptr;
};

class CancelSource {
 public:
  explicit CancelSource(Executor& executor) : executor_(executor), follow_(*this) {}
  // Also cancelled when `parent` is, with the same reason.
  CancelSource(Executor& executor, CancelToken parent) : CancelSource(executor) {
    follow_.parent = parent;
    if (parent.cancelled()) {
      cancel(parent.reason());
    } else {
      parent.attach(follow_);
    }
  }
  CancelSource(const CancelSource&) = delete;
  CancelSource& operator=(const CancelSource&) = delete;
  ~CancelSource() {
    SARSEN_ASSERT(hooks_.empty() || executor_.abandoned(),
                  "a cancel source outlives the waits that use its tokens");
  }

  CancelToken token() { return CancelToken(*this); }
  bool cancelled() const { return cancelled_; }

  // Idempotent: the first reason stays.
  void cancel(RuntimeError reason = RuntimeError::cancelled) {
    if (cancelled_) return;
    cancelled_ = true;
    reason_ = reason;
    follow_.unlink();
    // While a crash is simulated, what the hooks refer to may be gone.
    while (!executor_.abandoned() && !hooks_.empty()) hooks_.pop_front().on_cancel();
  }

 private:
  friend class CancelToken;
  struct FollowParent final : CancelHook {
    explicit FollowParent(CancelSource& source) : child(source) {}
    void on_cancel() override { child.cancel(parent.reason()); }
    CancelSource& child;
    CancelToken parent;
  };

  Executor& executor_;
  bool cancelled_ = false;
  RuntimeError reason_ = RuntimeError::cancelled;
  IntrusiveList<CancelHook> hooks_;
  FollowParent follow_;
};

inline bool CancelToken::cancelled() const {
  return source_ != nullptr && source_->cancelled_;
}

inline RuntimeError CancelToken::reason() const {
  SARSEN_ASSERT(cancelled(), "only a cancelled token has a reason");
  return source_->reason_;
}

inline void CancelToken::attach(CancelHook& hook) const {
  SARSEN_ASSERT(!cancelled(), "a hook is attached before the cancellation");
  if (source_ != nullptr) source_->hooks_.push_back(hook);
}

// Calls `function` when the token is cancelled; at once when it already is. For bridging to things
// that have a cancel() or close() of their own:
//
//   CancelCallback close_on_cancel(token, [&] { connection.close(); });
template <typename Function>
class CancelCallback final : public CancelHook {
 public:
  CancelCallback(CancelToken token, Function function) : function_(std::move(function)) {
    if (token.cancelled()) {
      function_();
    } else {
      token.attach(*this);
    }
  }
  void on_cancel() override { function_(); }

 private:
  Function function_;
};

}  // namespace sarsen
