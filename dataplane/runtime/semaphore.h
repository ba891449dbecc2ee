// Semaphore: a bounded number of units (slots, bytes, credits) that coroutines borrow, in the order
// in which they asked.
//
//   auto units = co_await slots_.acquire(1, token);
//   if (!units) co_return fail(std::move(units).error());
//   ...                                             // given back when `units` dies
//
// Order      First come, first served: a large request at the head is not overtaken by small ones
//            that would fit, so it cannot starve.
// Lifecycle  close() fails those that wait and all later requests; units still held come back as
//            usual. The destructor asserts that nobody waits and that all units are back, unless
//            the executor is abandoned.
// Bounded by capacity, and waiters_max coroutines waiting.
// Shard      One.
// Errors     stopped: closed. overloaded: waiters_max already wait. bad_argument: more units than
// the
//            capacity, which could never be granted. Or the token's reason.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "dataplane/runtime/waiter.h"

namespace sarsen {

class Semaphore;

// Borrowed units; given back by the destructor. Movable, empty after a move.
class [[nodiscard]] Units {
 public:
  Units() = default;
  Units(Units&& other) noexcept
      : executor_(other.executor_),
        semaphore_(other.semaphore_),
        count_(std::exchange(other.count_, 0)) {}
  Units& operator=(Units&& other) noexcept {
    if (this != &other) {
      give_back();
      executor_ = other.executor_;
      semaphore_ = other.semaphore_;
      count_ = std::exchange(other.count_, 0);
    }
    return *this;
  }
  ~Units() { give_back(); }

  std::uint64_t count() const { return count_; }
  // Takes `count` of these units into an object of their own. count <= this->count().
  Units split(std::uint64_t count) {
    SARSEN_ASSERT(count <= count_, "units are split from what is held");
    count_ -= count;
    return Units(executor_, semaphore_, count);
  }
  // Takes over the units of `other`, of the same semaphore.
  void merge(Units other) {
    if (other.count_ == 0) return;
    SARSEN_ASSERT(count_ == 0 || semaphore_ == other.semaphore_,
                  "units of one semaphore are merged");
    executor_ = other.executor_;
    semaphore_ = other.semaphore_;
    count_ += std::exchange(other.count_, 0);
  }
  // Gives back `count` of these units now; all of them without an argument.
  void give_back(std::uint64_t count) { split(count).give_back(); }
  inline void give_back();

 private:
  friend class Semaphore;
  Units(Executor* executor, Semaphore* semaphore, std::uint64_t count)
      : executor_(executor), semaphore_(semaphore), count_(count) {}
  // Beside the semaphore, because in a simulated crash the semaphore may be gone first.
  Executor* executor_ = nullptr;
  Semaphore* semaphore_ = nullptr;
  std::uint64_t count_ = 0;
};

class Semaphore {
 public:
  class [[nodiscard]] Acquire final : public Waiter {
   public:
    Acquire(Semaphore& semaphore, std::uint64_t count, CancelToken token)
        : Waiter(semaphore.executor_, token), semaphore_(semaphore), count_(count) {}
    bool await_ready() { return semaphore_.decide(*this); }
    void await_suspend(std::coroutine_handle<> handle) {
      ++semaphore_.waiting_;
      wait_on(semaphore_.waiters_, handle);
    }
    Result<Units> await_resume() {
      if (failure()) return ::sarsen::fail(make_error(*failure()));
      return Units(&semaphore_.executor_, &semaphore_, count_);
    }

   private:
    friend class Semaphore;
    void withdrawn() override {
      --semaphore_.waiting_;
      semaphore_.serve();
    }
    Semaphore& semaphore_;
    std::uint64_t count_;
  };

  Semaphore(Executor& executor, std::uint64_t capacity, std::size_t waiters_max)
      : executor_(executor), capacity_(capacity), available_(capacity), waiters_max_(waiters_max) {}
  Semaphore(const Semaphore&) = delete;
  Semaphore& operator=(const Semaphore&) = delete;
  ~Semaphore() {
    if (executor_.abandoned()) return;
    SARSEN_ASSERT(waiters_.empty(), "nobody waits for a semaphore that is destroyed");
    SARSEN_ASSERT(available_ == capacity_,
                  "all units are back before their semaphore is destroyed");
  }

  // co_await gives Result<Units>. Queues even a request that fits when others wait already.
  Acquire acquire(std::uint64_t count, CancelToken token = {}) { return {*this, count, token}; }
  // Without waiting; nothing when the units are not free, others wait, or the semaphore is closed.
  std::optional<Units> try_acquire(std::uint64_t count) {
    if (closed_ || !waiters_.empty() || count > available_) return std::nullopt;
    available_ -= count;
    return Units(&executor_, this, count);
  }
  // Idempotent.
  void close() {
    closed_ = true;
    while (!waiters_.empty()) {
      --waiting_;
      waiters_.front().fail(RuntimeError::stopped);
    }
  }

  bool closed() const { return closed_; }
  std::uint64_t capacity() const { return capacity_; }
  std::uint64_t available() const { return available_; }
  std::size_t waiting() const { return waiting_; }

 private:
  friend class Units;
  // True when `request` is answered without waiting: granted, or with its failure noted.
  bool decide(Acquire& request) {
    if (closed_) {
      request.refuse(RuntimeError::stopped);
    } else if (request.count_ > capacity_) {
      request.refuse(RuntimeError::bad_argument);
    } else if (request.cancelled_before()) {
      // Its failure is noted.
    } else if (waiters_.empty() && request.count_ <= available_) {
      available_ -= request.count_;
    } else if (waiting_ >= waiters_max_) {
      request.refuse(RuntimeError::overloaded);
    } else {
      return false;
    }
    return true;
  }
  // Grants from the head for as long as the head fits.
  void serve() {
    while (!waiters_.empty() && waiters_.front().count_ <= available_) {
      Acquire& request = waiters_.front();
      available_ -= request.count_;
      --waiting_;
      request.wake();
    }
  }
  void take_back(std::uint64_t count) {
    available_ += count;
    SARSEN_ASSERT(available_ <= capacity_, "no more units come back than were lent");
    serve();
  }

  Executor& executor_;
  const std::uint64_t capacity_;
  std::uint64_t available_;
  const std::size_t waiters_max_;
  std::size_t waiting_ = 0;
  bool closed_ = false;
  IntrusiveList<Acquire> waiters_;
};

inline void Units::give_back() {
  if (count_ == 0) return;
  const std::uint64_t count = std::exchange(count_, 0);
  if (!executor_->abandoned()) semaphore_->take_back(count);
}

}  // namespace sarsen
