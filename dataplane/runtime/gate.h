// Gate: counts the work that uses an object, so that stop() can wait for it to end.
//
//   auto hold = gate_.hold();
//   if (!hold) co_return fail(std::move(hold).error());
//   ...                                              // the object lives until `hold` dies
//
//   Task<void> stop() { co_await gate_.close(); }
//
// Lifecycle  From the call of close() on, hold() fails; the returned wait ends when the last holder
//            is gone. close() may be called and awaited again. The destructor asserts that a gate
//            that was ever held is closed and empty, unless the executor is abandoned.
// Shard      One.   Errors: stopped, from hold().
#pragma once

#include <cstddef>
#include <utility>

#include "dataplane/runtime/waiter.h"

namespace sarsen {

class Gate {
 public:
  // Movable, empty after a move.
  class [[nodiscard]] Holder {
   public:
    Holder() = default;
    Holder(Holder&& other) noexcept
        : executor_(other.executor_), gate_(std::exchange(other.gate_, nullptr)) {}
    Holder& operator=(Holder&& other) noexcept {
      if (this != &other) {
        release();
        executor_ = other.executor_;
        gate_ = std::exchange(other.gate_, nullptr);
      }
      return *this;
    }
    ~Holder() { release(); }
    void release() {
      Gate* gate = std::exchange(gate_, nullptr);
      if (gate != nullptr && !executor_->abandoned()) gate->leave();
    }

   private:
    friend class Gate;
    explicit Holder(Gate& gate) : executor_(&gate.executor_), gate_(&gate) {}
    // Beside the gate, because in a simulated crash the gate may be gone first.
    Executor* executor_ = nullptr;
    Gate* gate_ = nullptr;
  };

  class [[nodiscard]] Close final : public Waiter {
   public:
    explicit Close(Gate& gate) : Waiter(gate.executor_), gate_(gate) {}
    bool await_ready() const { return gate_.holders_ == 0; }
    void await_suspend(std::coroutine_handle<> handle) { wait_on(gate_.closers_, handle); }
    void await_resume() const {}

   private:
    Gate& gate_;
  };

  explicit Gate(Executor& executor) : executor_(executor) {}
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate() {
    if (executor_.abandoned()) return;
    SARSEN_ASSERT(holders_ == 0, "a gate is empty before it is destroyed");
    SARSEN_ASSERT(closing_ || !ever_held_, "a gate is closed before it is destroyed");
    SARSEN_ASSERT(closers_.empty(), "nobody waits for a gate that is destroyed");
  }

  Result<Holder> hold() {
    if (closing_) return fail(make_error(RuntimeError::stopped));
    ever_held_ = true;
    ++holders_;
    return Holder(*this);
  }
  Close close() {
    closing_ = true;
    return Close(*this);
  }
  bool closing() const { return closing_; }
  std::size_t holders() const { return holders_; }

 private:
  void leave() {
    if (--holders_ != 0) return;
    while (!closers_.empty()) closers_.front().wake();
  }

  Executor& executor_;
  std::size_t holders_ = 0;
  bool closing_ = false;
  bool ever_held_ = false;
  IntrusiveList<Close> closers_;
};

}  // namespace sarsen
