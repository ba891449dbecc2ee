// Runs one coroutine on the production runtime, to its end: what a command of one store needs.
//
// Lifecycle  The call returns when `work` ended. Memory is not locked or registered: a tool must
//            run where a daemon's limits were not raised.
// Errors     Those of ShardRunner::start, when io_uring is blocked or the kernel is too old.
#pragma once

#include <functional>

#include "dataplane/runtime/uring/shard_runner.h"

namespace sarsen {

// Give a function that returns a coroutine's task, not a capturing lambda that is a coroutine.
Result<void> run_on_one_shard(std::function<Task<void>(ShardContext)> work);

}  // namespace sarsen
