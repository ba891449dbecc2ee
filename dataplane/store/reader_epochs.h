// ReaderEpochs: lets a writer wait until no reader that looked up locations before it began can
// still be reading them.
//
// A reader enters before it looks up where data is and leaves when its I/O has ended. Space that
// the index no longer names is reused, and home blocks are overwritten, only after a barrier.
//
// Shard    One.
// Invariant I-STORE-1  No device block is written while a read of it, begun before the block's
// content
//                      was superseded, is in flight.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>

#include "dataplane/runtime/condition.h"
#include "dataplane/runtime/task.h"

namespace sarsen {

class ReaderEpochs {
 public:
  class [[nodiscard]] Token {
   public:
    Token(Token&& other) noexcept
        : executor_(other.executor_),
          owner_(std::exchange(other.owner_, nullptr)),
          epoch_(other.epoch_) {}
    Token& operator=(Token&&) = delete;
    ~Token() {
      if (owner_ != nullptr && !executor_->abandoned()) owner_->leave(epoch_);
    }

   private:
    friend class ReaderEpochs;
    Token(Executor* executor, ReaderEpochs* owner, std::uint64_t epoch)
        : executor_(executor), owner_(owner), epoch_(epoch) {}
    Executor* executor_;
    ReaderEpochs* owner_;
    std::uint64_t epoch_;
  };

  explicit ReaderEpochs(Executor& executor) : executor_(executor), left_(executor) {}

  Token enter() {
    ++readers_.back();
    return Token(&executor_, this, first_ + readers_.size() - 1);
  }
  // Waits for the readers that entered before the call.
  Task<void> barrier() {
    const std::uint64_t epoch = first_ + readers_.size() - 1;
    readers_.push_back(0);
    trim();
    while (first_ <= epoch) co_await left_.wait();
  }

 private:
  void leave(std::uint64_t epoch) {
    --readers_[epoch - first_];
    trim();
    left_.notify_all();
  }
  // Drops epochs without readers from the front; the last one stays open.
  void trim() {
    while (readers_.size() > 1 && readers_.front() == 0) {
      readers_.pop_front();
      ++first_;
    }
  }

  Executor& executor_;
  std::uint64_t first_ = 0;
  std::deque<std::uint64_t> readers_{0};
  Condition left_;
};

}  // namespace sarsen
