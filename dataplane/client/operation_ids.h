// OperationIds: which changes of a session are not acknowledged yet, per placement group (R7).
//
// I-CLIENT-1  first_unacknowledged(group) is the lowest id of a change to the group that may still
//             be sent again; every id below it was answered, or its caller was told that it ended.
// Ids rise with each change of the session. Per group, because a group that serves nobody for a
// while must not make the others remember all that they did meanwhile.
#pragma once

#include <map>
#include <set>
#include <utility>

#include "dataplane/runtime/executor.h"
#include "dataplane/wire/message.h"

namespace sarsen {

class OperationIds {
 public:
  // One change. Its id counts as unacknowledged from group(...) to the end of its life.
  class Operation {
   public:
    explicit Operation(OperationIds& ids) : executor_(ids.executor_), ids_(ids), id_(ids.next_) {
      ids.next_ = id_.next();
    }
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;
    ~Operation() {
      if (!executor_.abandoned()) leave();
    }

    wire::OperationId id() const { return id_; }
    // The group that it is sent to. May change between tries: a pool's groups can be split.
    void enter(wire::PgNumber group) {
      if (entered_ && group_ == group) return;
      leave();
      group_ = group;
      entered_ = true;
      ids_.open_[group].insert(id_);
    }

   private:
    void leave() {
      if (!std::exchange(entered_, false)) return;
      const auto found = ids_.open_.find(group_);
      found->second.erase(id_);
      if (found->second.empty()) ids_.open_.erase(found);
    }
    Executor& executor_;  // beside the ids, because in a simulated crash they may be gone first
    OperationIds& ids_;
    const wire::OperationId id_;
    wire::PgNumber group_;
    bool entered_ = false;
  };

  explicit OperationIds(Executor& executor) : executor_(executor) {}

  wire::OperationId first_unacknowledged(wire::PgNumber group) const {
    const auto found = open_.find(group);
    return found == open_.end() ? next_ : *found->second.begin();
  }

 private:
  Executor& executor_;
  wire::OperationId next_{1};
  std::map<wire::PgNumber, std::set<wire::OperationId>> open_;
};

}  // namespace sarsen
