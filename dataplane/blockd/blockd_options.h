// The command line of sarsen-blockd.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dataplane/base/log.h"
#include "dataplane/runtime/uring/daemon_flags.h"

namespace sarsen::blockd {

struct BlockdOptions : DaemonFlags {
  BlockdOptions() { memory_bytes = 256 * kMiB; }

  std::string mon = "unix:/run/sarsen/mon.sock";
  std::string state_dir = "/var/lib/sarsen";
  std::string run_dir = "/run/sarsen";
  std::string keeper_socket;  // default: keeper.sock in run_dir
  std::string loop_helper;    // default: sarsen-loop beside the program
  std::vector<std::string> nbd_tcp;
  bool insecure = false;
  std::optional<unsigned> cpu;

  std::string control_socket() const { return run_dir + "/blockd.sock"; }
  std::string nbd_socket() const { return run_dir + "/nbd.sock"; }
  std::string lock_file() const { return run_dir + "/blockd.lock"; }
  std::string map_file() const { return run_dir + "/blockd.map"; }
  ShardRunnerOptions runner() const;
};

// The options, or the status with which the program ends (0: help was asked for).
struct Parsed {
  BlockdOptions options;
  std::optional<int> exit_status;
};
Parsed parse_arguments(int argument_count, const char* const* arguments);

}  // namespace sarsen::blockd
