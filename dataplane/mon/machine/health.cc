#include "dataplane/mon/machine/health.h"

#include <algorithm>
#include <tuple>

namespace sarsen {
namespace {

std::string title(const OsdStatus& status) {
  return "osd." + std::to_string(status.osd.id.value) + " on " + status.osd.node;
}

// Collects the details of one check; adds it when there are any.
class Check {
 public:
  Check(std::string id, Health severity) {
    check_.id = std::move(id);
    check_.severity = severity;
  }
  void add(std::string detail) { check_.details.push_back(std::move(detail)); }
  void finish(std::vector<HealthCheck>& checks, const std::string& what) {
    if (check_.details.empty()) return;
    check_.summary = std::to_string(check_.details.size()) + " " + what;
    checks.push_back(std::move(check_));
  }

 private:
  HealthCheck check_;
};

std::uint64_t percent_used(const SpaceAccount& space) {
  return space.total_blocks == 0 ? 0 : used_blocks(space) * 100 / space.total_blocks;
}

void check_osds(ClusterStatus& status, FullRatios ratios) {
  Check down("OSD_DOWN", Health::warn);
  Check full("OSD_FULL", Health::err);
  Check near_full("OSD_NEARFULL", Health::warn);
  Check read_only("OSD_DEVICE_READ_ONLY", Health::err);
  Check corrupt("CORRUPT_BLOCKS", Health::err);
  for (const OsdStatus& osd : status.osds) {
    if (!osd.osd.up) {
      down.add(title(osd) + (osd.osd.incarnation == 0 ? " has never booted" : " is down"));
    }
    if (!osd.reported) continue;
    const std::uint64_t percent = percent_used(osd.space);
    const std::string uses = title(osd) + " uses " + std::to_string(percent) + "% of its device";
    if (percent >= ratios.full) {
      full.add(uses);
    } else if (percent >= ratios.near_full) {
      near_full.add(uses);
    }
    if (osd.read_only) read_only.add(title(osd) + ": its device failed a write; replace it");
    if (osd.corrupt_blocks_found > 0) {
      corrupt.add(title(osd) + " has found " + std::to_string(osd.corrupt_blocks_found) +
                  " blocks that fail their checksum");
    }
  }
  full.finish(status.checks, "OSD(s) are full: writes wait for space");
  read_only.finish(status.checks, "OSD(s) take no changes any more");
  corrupt.finish(status.checks, "OSD(s) have corrupt blocks");
  down.finish(status.checks, "OSD(s) are down");
  near_full.finish(status.checks, "OSD(s) are nearly full");
}

void check_pools(ClusterStatus& status, const ClusterMap& map) {
  Check inactive("PG_INACTIVE", Health::err);
  Check empty("MON_EMPTY_POOL", Health::warn);
  for (const PoolStatus& pool : status.pools) {
    const bool has_members =
        std::ranges::any_of(map.pools.at(pool.id).groups,
                            [](const PgConfiguration& group) { return !group.in_sync.empty(); });
    if (!has_members) {
      empty.add("pool " + pool.name + " has no OSD; sarsen osd create adds one");
    } else if (pool.groups_active < pool.groups) {
      inactive.add("pool " + pool.name + ": " + std::to_string(pool.groups - pool.groups_active) +
                   " of " + std::to_string(pool.groups) + " placement groups serve nobody");
    }
  }
  inactive.finish(status.checks, "pool(s) have data that cannot be reached");
  empty.finish(status.checks, "pool(s) have no OSD");
}

PoolStatus status_of(const PoolEntry& pool, const ClusterMap& map, std::vector<OsdStatus>& osds) {
  PoolStatus status{.id = pool.id,
                    .name = pool.name,
                    .copies = pool.copies,
                    .groups = static_cast<std::uint32_t>(pool.groups.size())};
  for (const PgConfiguration& group : pool.groups) {
    if (!group.active || group.in_sync.empty()) continue;
    const auto primary = std::ranges::find_if(
        osds, [&](const OsdStatus& osd) { return osd.osd.id == group.in_sync[0]; });
    if (primary == osds.end()) continue;
    ++primary->groups_led;
    if (primary->osd.up) ++status.groups_active;
  }
  for (const auto& [id, image] : map.images) {
    if (image.pool != pool.id) continue;
    ++status.images;
    status.provisioned_bytes += image.size_bytes;
  }
  return status;
}

}  // namespace

std::uint64_t used_blocks(const SpaceAccount& space) {
  const std::uint64_t available = space.free_blocks + space.unassigned_blocks;
  return available < space.total_blocks ? space.total_blocks - available : 0;
}

ClusterStatus cluster_status(const ClusterMap& map, const std::map<OsdId, OsdSeen>& seen,
                             FullRatios ratios) {
  ClusterStatus status{
      .cluster = map.cluster, .store_incarnation = map.store_incarnation, .epoch = map.epoch};
  for (const auto& [id, entry] : map.osds) {
    OsdStatus osd{.osd = entry};
    if (const auto found = seen.find(id); found != seen.end()) {
      const OsdReport& report = found->second.report;
      osd.reported = true;
      osd.report_age = found->second.age;
      osd.map_epoch = report.map_epoch;
      osd.space = report.space;
      osd.read_only = report.read_only;
      osd.corrupt_blocks_found = report.corrupt_blocks_found;
    }
    status.osds.push_back(std::move(osd));
  }
  for (const auto& [id, pool] : map.pools)
    status.pools.push_back(status_of(pool, map, status.osds));
  for (const auto& [id, image] : map.images) status.attachments += image.attachments.size();
  check_osds(status, ratios);
  check_pools(status, map);
  std::ranges::sort(status.checks, [](const HealthCheck& a, const HealthCheck& b) {
    return std::tie(b.severity, a.id) < std::tie(a.severity, b.id);
  });
  for (const HealthCheck& check : status.checks) {
    status.health = std::max(status.health, check.severity);
  }
  return status;
}

}  // namespace sarsen
