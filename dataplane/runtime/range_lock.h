// Range locks: exclusive and shared locks on half-open block ranges [first, last) of keyed objects.
//
//   RangeLock lock(table, object, first, last, LockMode::exclusive);
//   SARSEN_CO_TRY(co_await lock.acquire(token));
//   ...                                              // released by release() or when `lock` dies
//
// Order      A request waits for every conflicting one that was made before it, whether that one is
//            held or waits itself: writers and readers are served in turn and none starves. Two
//            requests conflict when their ranges of the same key overlap and one is exclusive.
// Deadlock   A coroutine that holds one lock and waits for another can deadlock with one that does
// the
//            opposite: take one range that covers both, or take them in ascending order everywhere.
// Cost       No allocation: a lock is a node in its owner's frame. To acquire or to release looks
// at
//            each lock whose key falls in the same bucket.
// Lifecycle  The table outlives its locks; asserted, unless the executor is abandoned.
// Shard      One.   Bounded by the requests that are in progress.
// Errors     The token's reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "dataplane/base/units.h"
#include "dataplane/runtime/waiter.h"

namespace sarsen {

enum class LockMode : std::uint8_t { shared, exclusive };

template <typename Key>
class RangeLock;

// Key has == and std::hash.
template <typename Key>
class RangeLockTable {
 public:
  // `buckets` is a power of two, about the number of keys that are locked at a time.
  explicit RangeLockTable(Executor& executor, std::size_t buckets = 256)
      : executor_(executor), buckets_(buckets) {
    SARSEN_ASSERT((buckets & (buckets - 1)) == 0 && buckets > 0, "a power of two");
  }
  RangeLockTable(const RangeLockTable&) = delete;
  RangeLockTable& operator=(const RangeLockTable&) = delete;
  ~RangeLockTable() {
    SARSEN_ASSERT(size_ == 0 || executor_.abandoned(), "a lock table outlives its locks");
  }

  // Locks held and waited for.
  std::size_t size() const { return size_; }
  std::size_t waiting() const { return waiting_; }

 private:
  friend class RangeLock<Key>;
  IntrusiveList<RangeLock<Key>>& bucket(const Key& key) {
    // Multiplied (by 2^64 / golden ratio), because std::hash of an integer is the integer.
    const std::uint64_t mixed = std::hash<Key>{}(key) * 0x9e3779b97f4a7c15u;
    return buckets_[(mixed >> 32) & (buckets_.size() - 1)];
  }

  Executor& executor_;
  std::vector<IntrusiveList<RangeLock<Key>>> buckets_;  // each in the order of the requests
  std::size_t size_ = 0;
  std::size_t waiting_ = 0;
};

template <typename Key>
class RangeLock : public ListNode {
 public:
  class [[nodiscard]] Acquire final : public Waiter {
   public:
    Acquire(RangeLock& lock, CancelToken token)
        : Waiter(lock.table_.executor_, token), lock_(lock) {}
    bool await_ready() { return cancelled_before() || lock_.enter(); }
    void await_suspend(std::coroutine_handle<> handle) { wait_on(lock_.waiter_, handle); }
    Result<void> await_resume() const { return outcome(); }

   private:
    void withdrawn() override { lock_.leave(); }
    RangeLock& lock_;
  };

  // Holds nothing yet. first < last.
  RangeLock(RangeLockTable<Key>& table, Key key, BlockIndex first, BlockIndex last, LockMode mode)
      : table_(table),
        executor_(table.executor_),
        key_(std::move(key)),
        first_(first),
        last_(last),
        mode_(mode) {
    SARSEN_ASSERT(first < last, "a range lock covers at least one block");
  }
  RangeLock(const RangeLock&) = delete;
  RangeLock& operator=(const RangeLock&) = delete;
  ~RangeLock() {
    if (!executor_.abandoned()) release();
  }

  // co_await gives Result<void>. Not while it is held.
  Acquire acquire(CancelToken token = {}) {
    SARSEN_ASSERT(state_ == State::idle, "a range lock is acquired once at a time");
    return {*this, token};
  }
  // Without waiting; false when a conflicting lock is held or waited for.
  bool try_acquire() {
    SARSEN_ASSERT(state_ == State::idle, "a range lock is acquired once at a time");
    if (enter()) return true;
    leave();
    return false;
  }
  // Idempotent. May be acquired again.
  void release() {
    if (state_ == State::idle) return;
    SARSEN_ASSERT(state_ == State::held, "a lock that is waited for is not released");
    leave();
  }
  bool held() const { return state_ == State::held; }

 private:
  friend class RangeLockTable<Key>;
  // idle -> held or waiting by enter(); waiting -> held by leave() of another; -> idle by leave().
  enum class State : std::uint8_t { idle, waiting, held };

  bool conflicts(const RangeLock& other) const {
    const bool overlap = first_ < other.last_ && other.first_ < last_;
    const bool compatible = mode_ == LockMode::shared && other.mode_ == LockMode::shared;
    return overlap && !compatible && key_ == other.key_;
  }
  // Joins the end of the line; true when nothing there is in the way.
  bool enter() {
    auto& line = table_.bucket(key_);
    blockers_ = 0;
    if (!line.empty()) {
      for (RangeLock* each = &line.front(); each != nullptr; each = line.next(*each)) {
        if (conflicts(*each)) ++blockers_;
      }
    }
    line.push_back(*this);
    ++table_.size_;
    state_ = blockers_ == 0 ? State::held : State::waiting;
    if (state_ == State::waiting) ++table_.waiting_;
    return state_ == State::held;
  }
  // Out of the line; those behind whose last obstacle this was hold their locks from here on.
  void leave() {
    auto& line = table_.bucket(key_);
    for (RangeLock* each = line.next(*this); each != nullptr; each = line.next(*each)) {
      if (!conflicts(*each) || --each->blockers_ != 0) continue;
      each->state_ = State::held;
      --table_.waiting_;
      each->waiter_.front().wake();
    }
    unlink();
    --table_.size_;
    if (state_ == State::waiting) --table_.waiting_;
    state_ = State::idle;
  }

  RangeLockTable<Key>& table_;
  Executor&
      executor_;  // beside the table, because in a simulated crash the table may be gone first
  const Key key_;
  const BlockIndex first_;
  const BlockIndex last_;
  const LockMode mode_;
  State state_ = State::idle;
  std::size_t blockers_ = 0;       // conflicting locks before this one in the line
  IntrusiveList<Acquire> waiter_;  // at most one
};

}  // namespace sarsen
