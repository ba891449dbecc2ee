// The command line of sarsen-osd.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dataplane/base/log.h"
#include "dataplane/osd/osd.h"
#include "dataplane/runtime/uring/shard_runner.h"

namespace sarsen {

struct OsdOptions {
  std::vector<std::string> devices;
  std::string mon = "unix:/run/sarsen/mon.sock";
  std::string listen = "unix:/run/sarsen/osd-{osd}.sock";
  std::string advertised;
  std::string node;  // default: the host's name
  bool insecure = false;
  LogLevel log_level = LogLevel::info;
  std::uint64_t memory_bytes = 128 * kMiB;  // for I/O, of each device
  std::vector<unsigned> cpus;               // one for each device, or none
  std::optional<unsigned> numa_node;
  SchedulingPolicy scheduling = SchedulingPolicy::other;
  int realtime_priority = 1;
  std::uint32_t spin_us = 0;
  std::uint64_t scrub_bytes_per_second = 4 * kMiB;

  ShardRunnerOptions runner() const;
  OsdLimits limits() const;
  // Of the device with this number, which holds this OSD.
  OsdPlace place(std::uint32_t device, std::uint32_t osd) const;
};

// The options, or the status with which the program ends (0: help was asked for).
struct ParsedOsdOptions {
  OsdOptions options;
  std::optional<int> exit_status;
};
ParsedOsdOptions parse_osd_arguments(int argument_count, const char* const* arguments);

}  // namespace sarsen
