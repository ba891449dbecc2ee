// What every daemon with shards takes on its command line: I/O memory, threads, log.
//
// Options structs of the daemons derive from DaemonFlags. Plain values; wiring at start-up only.
#pragma once

#include <cstdint>
#include <optional>

#include "dataplane/base/log.h"
#include "dataplane/runtime/uring/shard_runner.h"
#include "dataplane/runtime/uring/thread_options.h"

namespace CLI {
class App;
}

namespace sarsen {

struct DaemonFlags {
  LogLevel log_level = LogLevel::info;
  std::uint64_t memory_bytes = 128 * kMiB;  // for I/O, of each shard
  std::optional<unsigned> numa_node;
  SchedulingPolicy scheduling = SchedulingPolicy::other;
  int realtime_priority = 1;
  std::uint32_t spin_us = 0;

  void apply_to(ShardRunnerOptions& runner) const;
};

// Adds --memory (at least `memory_bytes_min`; the default is what `flags` has), --numa-node,
// --scheduling, --realtime-priority, --spin-us and --log-level.
void add_daemon_flags(CLI::App& app, DaemonFlags& flags, std::uint64_t memory_bytes_min);

}  // namespace sarsen
