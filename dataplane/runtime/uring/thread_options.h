// Where and how a shard's thread runs.
#pragma once

#include <optional>
#include <string>

#include "dataplane/base/result.h"
#include "dataplane/runtime/error.h"

namespace sarsen {

enum class SchedulingPolicy { other, round_robin, fifo };

struct ThreadOptions {
  std::string name = "shard";                  // at most 15 characters are shown
  std::optional<unsigned> cpu = std::nullopt;  // pin to this CPU
  SchedulingPolicy scheduling = SchedulingPolicy::other;
  int realtime_priority = 1;                         // 1 to 99, for round_robin and fifo
  std::optional<unsigned> numa_node = std::nullopt;  // prefer memory of this node
};

// Applies the options to the calling thread. Errors name the option and what the system must allow.
Result<void> apply_thread_options(const ThreadOptions& options);

// Asks for memory of `node` for [data, data+bytes), before it is touched. Page-aligned.
Result<void> prefer_numa_node(void* data, std::size_t bytes, unsigned node);

}  // namespace sarsen
