// MonState: all that the mon must remember: the map, and what makes numbers unique. A value.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "dataplane/placement/cluster_map.h"

namespace sarsen {

struct MonState {
  ClusterMap map{};
  // The next numbers to be given; never lower than one that was given (I-MAP-3).
  std::uint32_t osd_next = 0;
  std::uint32_t pool_next = 1;
  std::uint64_t image_next = 1;
  // OsdBoot::boot_id of the latest boot of each OSD that was accepted.
  std::map<OsdId, std::uint64_t> boots{};
  bool operator==(const MonState&) const = default;
};

struct ClusterOptions {
  wire::ClusterId cluster{};
  std::uint64_t store_incarnation = 0;
  std::string pool = "rbd";
  std::uint32_t group_bits = 5;
};

}  // namespace sarsen
