// Changes that overlap take effect in the order of their calls: each waits until the earlier ones
// that touch its blocks have ended.
//
// A change waits for space, for extents or for a new chunk before it is given its lane sequence;
// without this, two that overlap could overtake each other there.
//
// Usage      OverlapOrder::Turn turn(order, object, first_block, block_count);   // no wait before
//            if (!turn.is_first()) co_await turn.wait();
// Lifecycle  Outlives its turns.   Shard: one.   Bounded by the changes in flight.
// Invariant  I-STORE-9  Of two changes in flight that overlap, the earlier call has the lower lane
//            sequence.
#pragma once

#include <cstdint>

#include "dataplane/base/intrusive_list.h"
#include "dataplane/runtime/condition.h"
#include "dataplane/store/index/object_key.h"

namespace sarsen {

class OverlapOrder {
 public:
  explicit OverlapOrder(Executor& executor) : ended_(executor) {}

  class Turn : public ListNode {
   public:
    Turn(OverlapOrder& order, ObjectKey object, std::uint64_t first_block,
         std::uint64_t block_count)
        : order_(order),
          object_(object),
          first_block_(first_block),
          end_block_(first_block + block_count) {
      order_.turns_.push_back(*this);
    }
    Turn(const Turn&) = delete;
    ~Turn() {
      unlink();
      order_.ended_.notify_all();
    }

    bool is_first() const {
      for (Turn* other = &order_.turns_.front(); other != this;
           other = order_.turns_.next(*other)) {
        if (overlaps(*other)) return false;
      }
      return true;
    }
    Task<void> wait() {
      return order_.ended_.wait_until([this] { return is_first(); });
    }

   private:
    bool overlaps(const Turn& other) const {
      return first_block_ < other.end_block_ && other.first_block_ < end_block_ &&
             object_ == other.object_;
    }

    OverlapOrder& order_;
    ObjectKey object_;
    std::uint64_t first_block_;
    std::uint64_t end_block_;
  };

 private:
  IntrusiveList<Turn> turns_;  // in the order of their calls
  Condition ended_;
};

}  // namespace sarsen
