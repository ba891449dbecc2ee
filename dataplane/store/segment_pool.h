// The segments of a journal: which are free to be written, which are in use, and the numbers of
// their next uses.
//
// Shard    One.
// Invariant I-JOURNAL-6  A segment is given back only when the index holds all of its records
// durably
//                        and no reader uses its blocks: the store's checkpoint decides that.
#pragma once

#include <cstdint>
#include <deque>
#include <map>

#include "dataplane/runtime/condition.h"
#include "dataplane/runtime/env.h"
#include "dataplane/store/journal_format.h"

namespace sarsen {

struct SegmentGrant {
  std::uint32_t segment = 0;
  SegmentGeneration generation;
};

class SegmentPool {
 public:
  // Generations are issued from `first_generation` upwards. `reserve` segments are left for the
  // next recovery, which must be able to write what it accepted.
  SegmentPool(Executor& executor, SegmentGeneration first_generation, std::size_t reserve)
      : next_generation_(first_generation), reserve_(reserve), changed_(executor) {}

  // Before use: a segment that holds nothing, or one that recovery found in use.
  void add_free(std::uint32_t segment) { free_.push_back(segment); }
  void add_in_use(SegmentGrant grant) { in_use_[grant.generation] = grant.segment; }

  // Waits until a segment is free. The first grant may come from the reserve. Error: stopped.
  Task<Result<SegmentGrant>> take() {
    ++takers_;
    wanted_.notify();
    while (free_.size() <= reserve_now() && !closed_) co_await changed_.wait();
    --takers_;
    if (closed_) co_return fail(make_error(RuntimeError::stopped));
    const SegmentGrant grant{.segment = free_.front(), .generation = next_generation_};
    free_.pop_front();
    in_use_[grant.generation] = grant.segment;
    next_generation_ = next_generation_.next();
    granted_ = true;
    wanted_.notify();
    co_return grant;
  }
  // Frees every segment in use below `generation` (I-JOURNAL-6).
  void release_below(SegmentGeneration generation) {
    while (!in_use_.empty() && in_use_.begin()->first < generation) {
      free_.push_back(in_use_.begin()->second);
      in_use_.erase(in_use_.begin());
    }
    changed_.notify_all();
  }
  // Ends all waits of take().
  void close() {
    closed_ = true;
    changed_.notify_all();
  }

  std::size_t free_count() const { return free_.size(); }
  std::size_t total_count() const { return free_.size() + in_use_.size(); }
  const std::map<SegmentGeneration, std::uint32_t>& in_use() const { return in_use_; }
  // Somebody waits for a segment, and there is none.
  bool starved() const { return free_.size() <= reserve_now() && takers_ > 0; }
  SegmentGeneration next_generation() const { return next_generation_; }

  // Told on each take: the destager's cue. Set once, before use.
  struct Cue {
    Condition* condition = nullptr;
    void notify() const {
      if (condition != nullptr) condition->notify_all();
    }
  };
  void set_cue(Condition& condition) { wanted_.condition = &condition; }

 private:
  std::size_t reserve_now() const { return granted_ ? reserve_ : 0; }

  std::deque<std::uint32_t> free_;
  std::map<SegmentGeneration, std::uint32_t> in_use_;
  SegmentGeneration next_generation_;
  const std::size_t reserve_;
  bool granted_ = false;
  Condition changed_;
  Cue wanted_;
  std::size_t takers_ = 0;
  bool closed_ = false;
};

}  // namespace sarsen
