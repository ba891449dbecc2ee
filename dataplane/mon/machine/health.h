// What an operator should know: pure functions from the map and the latest reports.
#pragma once

#include <map>

#include "dataplane/membership/mon_api.h"

namespace sarsen {

// The latest report of an OSD's current run.
struct OsdSeen {
  OsdReport report;
  Duration age{0};
};

struct FullRatios {
  // In percent of the device's space, as Ceph has them.
  std::uint32_t near_full = 85;
  std::uint32_t full = 95;
};

// Status with its checks, worst first.
ClusterStatus cluster_status(const ClusterMap& map, const std::map<OsdId, OsdSeen>& seen,
                             FullRatios ratios = {});

// Blocks that cannot be given to new data.
std::uint64_t used_blocks(const SpaceAccount& space);

}  // namespace sarsen
