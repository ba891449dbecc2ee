// A map with one OSD, one pool of one copy and two groups, and one attached image of four objects.
#pragma once

#include "dataplane/placement/cluster_map.h"

namespace sarsen::test {

inline constexpr OsdId kOsd{7};
inline constexpr PoolId kPool{1};
inline constexpr ImageId kImage{9};
inline constexpr HolderId kHolder{0x77};

inline ClusterMap replica_map() {
  ClusterMap map;
  map.epoch = MapEpoch(1);
  map.osds[kOsd] = {.id = kOsd, .node = "a", .address = "tcp:osd:1", .incarnation = 1, .up = true};
  const PgConfiguration group{.epoch = PgEpoch(5), .in_sync = {kOsd}, .active = true};
  map.pools[kPool] = {.id = kPool, .name = "p", .group_bits = 1, .groups = {group, group}};
  map.images[kImage] = {.id = kImage,
                        .name = "disk",
                        .pool = kPool,
                        .size_bytes = 4 * std::uint64_t{kObjectBytes},
                        .family = 9,
                        .last_attach_epoch = AttachEpoch(3),
                        .attachments = {{.holder = kHolder, .epoch = AttachEpoch(3)}}};
  return map;
}

}  // namespace sarsen::test
