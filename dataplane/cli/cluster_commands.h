// `sarsen cluster create`, `status` and `health`. Each prints its report and gives the exit code.
#pragma once

#include <cstdint>
#include <string>

#include "dataplane/cli/command.h"

namespace sarsen {

struct ClusterCreateOptions {
  std::string data;
  std::string pool = "rbd";
  std::uint32_t group_bits = 5;
  OutputFormat format = OutputFormat::text;
};
// Makes the map store of a new cluster, offline: the only way to an empty one (rule M1).
ExitCode run_cluster_create(const ClusterCreateOptions& options);

struct StatusOptions {
  std::string mon;
  OutputFormat format = OutputFormat::text;
};
// Exit status `problems` when the cluster is not HEALTH_OK, for health alone.
ExitCode run_status(const StatusOptions& options);
ExitCode run_health(const StatusOptions& options);

}  // namespace sarsen
