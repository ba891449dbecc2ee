// The decisions of the mon: a pure, deterministic function from a state and a command to the next
// state. No I/O, no clock, no chance; the mon and the simulator run the same one.
//
// The caller makes the next state durable before anybody learns of it.
//
// What holds after each command: I-MAP-1, I-MAP-2, I-MAP-3, and
//   I-MON-1  A single writer has no other holder beside it.
//   I-MON-2  An OSD is up only in its latest boot; an older boot, another device or a start counter
//            that does not rise never joins (rule R5).
//   I-MON-3  The name of an image that is removed is free only when every placement group that has
//            a member has said that it holds nothing of it.
#pragma once

#include <cstdint>

#include "dataplane/base/result.h"
#include "dataplane/mon/machine/mon_command.h"
#include "dataplane/mon/machine/mon_state.h"

namespace sarsen {

// A new cluster: one pool of one copy, no OSD. Error: bad_request (name, group_bits).
Result<MonState> create_cluster(const ClusterOptions& options);

// The state after the command. Its map has the same epoch when nothing changed (the command was
// carried out before), and the next one otherwise. `wall_time_ns` only gets into names and dates
// that people read. Errors: MonError, as membership/mon_api.h says for each call.
Result<MonState> decide(const MonState& state, const MonCommand& command,
                        std::int64_t wall_time_ns);

}  // namespace sarsen
