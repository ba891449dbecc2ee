// The pending sleeps of one shard, earliest first: a binary heap whose positions are kept in
// SleepOperation::scratch, so that a cancelled sleep leaves at once.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "dataplane/runtime/env.h"

namespace sarsen {

class TimerHeap {
 public:
  bool empty() const { return heap_.empty(); }
  std::size_t size() const { return heap_.size(); }
  // Of the earliest sleep. Not empty.
  BootTime deadline() const { return heap_.front()->deadline(); }

  void insert(SleepOperation& operation) {
    heap_.push_back(&operation);
    sift_up(heap_.size() - 1);
  }

  void remove(SleepOperation& operation) {
    const std::size_t at = operation.scratch;
    SARSEN_ASSERT(at < heap_.size() && heap_[at] == &operation, "the sleep is in the heap");
    SleepOperation* const last = heap_.back();
    heap_.pop_back();
    if (last == &operation) return;
    place(at, last);
    sift_up(at);
    sift_down(last->scratch);
  }

  // Takes out the earliest sleep that is due at `now`, or gives nullptr.
  SleepOperation* pop_due(BootTime now) {
    if (heap_.empty() || heap_.front()->deadline() > now) return nullptr;
    SleepOperation* const first = heap_.front();
    remove(*first);
    return first;
  }

 private:
  void place(std::size_t at, SleepOperation* operation) {
    heap_[at] = operation;
    operation->scratch = at;
  }

  void sift_up(std::size_t at) {
    SleepOperation* const moving = heap_[at];
    while (at > 0 && heap_[(at - 1) / 2]->deadline() > moving->deadline()) {
      place(at, heap_[(at - 1) / 2]);
      at = (at - 1) / 2;
    }
    place(at, moving);
  }

  void sift_down(std::size_t at) {
    SleepOperation* const moving = heap_[at];
    for (std::size_t child = 2 * at + 1; child < heap_.size(); child = 2 * at + 1) {
      if (child + 1 < heap_.size() && heap_[child + 1]->deadline() < heap_[child]->deadline()) {
        ++child;
      }
      if (heap_[child]->deadline() >= moving->deadline()) break;
      place(at, heap_[child]);
      at = child;
    }
    place(at, moving);
  }

  std::vector<SleepOperation*> heap_;
};

}  // namespace sarsen
