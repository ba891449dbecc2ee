// The command line of sarsen-osd.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dataplane/base/log.h"
#include "dataplane/osd/osd.h"
#include "dataplane/runtime/uring/daemon_flags.h"

namespace sarsen {

struct OsdOptions : DaemonFlags {
  std::vector<std::string> devices;
  std::string mon = "unix:/run/sarsen/mon.sock";
  std::string listen = "unix:/run/sarsen/osd-{osd}.sock";
  std::string advertised;
  std::string node;  // default: the host's name
  bool insecure = false;
  std::vector<unsigned> cpus;  // one for each device, or none
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
