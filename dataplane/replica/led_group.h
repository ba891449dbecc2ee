// LedGroup: one placement group that this OSD leads: its order of changes, and who makes them.
//
// Invariants
//   I-REPLICA-4  (epoch, sequence) of a group is assigned once, to a change for which everything
//                else was decided, and rises in the order of the calls to the store.
// Shard      One. No I/O.
#pragma once

#include <cstdint>

#include "dataplane/replica/session_table.h"
#include "dataplane/wire/message.h"

namespace sarsen {

class LedGroup {
 public:
  LedGroup(const Env& env, std::uint32_t window_max) : sessions(env, window_max) {}

  // The next place in the order of the configuration `epoch`.
  wire::Changed assign(PgEpoch epoch) {
    if (epoch != last_.epoch) last_ = {.epoch = epoch, .sequence = {}};
    last_.sequence = last_.sequence.next();
    return last_;
  }
  // Of the latest change that was assigned.
  wire::Changed last() const { return last_; }

  SessionTable sessions;

 private:
  wire::Changed last_;
};

}  // namespace sarsen
