// Queue: a bounded first-in first-out queue between coroutines of one shard.
//
//   producer:  SARSEN_CO_TRY(co_await queue.push(std::move(request)));
//   consumer:  while (auto request = co_await queue.pop()) co_await serve(*std::move(request));
//
// push() waits while the queue is full, pop() while it is empty. Values, pushers and poppers are
// each served in their order.
//
// Lifecycle  close() fails pushers that wait and all later pushes; pops go on until the queue is
//            empty, then fail. The destructor asserts that nobody waits, unless the executor is
//            abandoned.
// Bounded by capacity (at least 1) values; a pusher that waits keeps its value in its own frame.
// Shard      One.
// Errors     stopped: closed (for pop: and empty). Or the token's reason; a value that is there, or
//            room, wins over a cancelled token.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "dataplane/runtime/waiter.h"

namespace sarsen {

template <typename T>
class Queue {
 public:
  class [[nodiscard]] Push final : public Waiter {
   public:
    Push(Queue& queue, T value, CancelToken token)
        : Waiter(queue.executor_, token), queue_(queue), value_(std::move(value)) {}
    bool await_ready() {
      if (queue_.closed_) {
        refuse(RuntimeError::stopped);
        return true;
      }
      if (!queue_.has_room()) return cancelled_before();
      queue_.put(std::move(value_));
      return true;
    }
    void await_suspend(std::coroutine_handle<> handle) { wait_on(queue_.pushers_, handle); }
    Result<void> await_resume() const { return outcome(); }

   private:
    friend class Queue;
    Queue& queue_;
    T value_;
  };

  class [[nodiscard]] Pop final : public Waiter {
   public:
    Pop(Queue& queue, CancelToken token) : Waiter(queue.executor_, token), queue_(queue) {}
    bool await_ready() {
      value_ = queue_.try_pop();
      if (value_) return true;
      if (queue_.closed_) {
        refuse(RuntimeError::stopped);
        return true;
      }
      return cancelled_before();
    }
    void await_suspend(std::coroutine_handle<> handle) { wait_on(queue_.poppers_, handle); }
    Result<T> await_resume() {
      if (failure()) return ::sarsen::fail(make_error(*failure()));
      return *std::move(value_);
    }

   private:
    friend class Queue;
    Queue& queue_;
    std::optional<T> value_;
  };

  Queue(Executor& executor, std::size_t capacity) : executor_(executor), capacity_(capacity) {
    SARSEN_ASSERT(capacity > 0, "a queue holds at least one value");
  }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  ~Queue() {
    SARSEN_ASSERT(executor_.abandoned() || (pushers_.empty() && poppers_.empty()),
                  "nobody waits for a queue that is destroyed");
  }

  Push push(T value, CancelToken token = {}) { return {*this, std::move(value), token}; }
  Pop pop(CancelToken token = {}) { return {*this, token}; }
  // Without waiting. False, with `value` untouched, when the queue is full or closed.
  bool try_push(T&& value) {
    if (closed_ || !has_room()) return false;
    put(std::move(value));
    return true;
  }
  std::optional<T> try_pop() {
    if (values_.empty()) return std::nullopt;
    std::optional<T> value(std::move(values_.front()));
    values_.pop_front();
    if (!pushers_.empty()) {
      Push& pusher = pushers_.front();
      values_.push_back(std::move(pusher.value_));
      pusher.wake();
    }
    return value;
  }
  // Idempotent.
  void close() {
    closed_ = true;
    while (!pushers_.empty()) pushers_.front().fail(RuntimeError::stopped);
    while (!poppers_.empty()) poppers_.front().fail(RuntimeError::stopped);
  }

  bool closed() const { return closed_; }
  std::size_t size() const { return values_.size(); }
  std::size_t capacity() const { return capacity_; }

 private:
  // Room for a newcomer: those who wait go first, and they wait only while there is none.
  bool has_room() const { return values_.size() < capacity_; }
  // A popper waits only while there are no values, so the value is for it.
  void put(T value) {
    if (poppers_.empty()) {
      values_.push_back(std::move(value));
      return;
    }
    Pop& popper = poppers_.front();
    popper.value_ = std::move(value);
    popper.wake();
  }

  Executor& executor_;
  const std::size_t capacity_;
  bool closed_ = false;
  std::deque<T> values_;
  IntrusiveList<Push> pushers_;
  IntrusiveList<Pop> poppers_;
};

}  // namespace sarsen
