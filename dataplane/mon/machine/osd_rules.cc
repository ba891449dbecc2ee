#include <algorithm>

#include "dataplane/mon/machine/rules.h"
#include "dataplane/placement/map_bounds.h"

namespace sarsen::rules {
namespace {

std::string title(OsdId osd) {
  return "osd." + std::to_string(osd.value);
}

bool pool_has_images(const MonState& state, PoolId pool) {
  return std::ranges::any_of(state.map.images,
                             [&](const auto& entry) { return entry.second.pool == pool; });
}

// I-MAP-1: a changed configuration has a new epoch.
void set_member(PgConfiguration& group, const OsdEntry* osd) {
  PgConfiguration wanted{.epoch = group.epoch};
  if (osd != nullptr) wanted.in_sync = {osd->id};
  wanted.active = osd != nullptr && osd->up;
  if (wanted == group) return;
  wanted.epoch = group.epoch.next();
  group = std::move(wanted);
}

// One copy: each group has one member, the groups are dealt to the OSDs in turn. A pool with images
// keeps what it has, and only groups without a member get one: nothing moves data yet.
void spread_groups(MonState& state) {
  std::vector<const OsdEntry*> osds;
  for (const auto& [id, osd] : state.map.osds) osds.push_back(&osd);
  for (auto& [id, pool] : state.map.pools) {
    const bool keep = pool_has_images(state, id);
    for (std::size_t number = 0; number < pool.groups.size(); ++number) {
      PgConfiguration& group = pool.groups[number];
      if (keep && !group.in_sync.empty()) continue;
      set_member(group, osds.empty() ? nullptr : osds[number % osds.size()]);
    }
  }
}

Result<OsdEntry*> osd_of(MonState& state, OsdId id, const Uuid& device) {
  const auto found = state.map.osds.find(id);
  if (found == state.map.osds.end()) {
    return refuse(MonError::not_found, title(id) + "; sarsen osd create makes one");
  }
  if (found->second.device != device) {
    return refuse(MonError::boot_refused, title(id) + " has device " +
                                              to_string(found->second.device) + ", and not " +
                                              to_string(device));
  }
  return &found->second;
}

// Rule R5. True: this very boot was accepted before.
Result<bool> check_start_counter(const MonState& state, const OsdEntry& osd, const OsdBoot& boot) {
  if (boot.start_counter > osd.start_counter) return false;
  const auto known = state.boots.find(osd.id);
  const bool same_boot = known != state.boots.end() && known->second == boot.boot_id;
  if (boot.start_counter == osd.start_counter && same_boot) return true;
  return refuse(MonError::boot_refused,
                title(osd.id) + ": its device was started " + std::to_string(boot.start_counter) +
                    " times, and was seen after " + std::to_string(osd.start_counter) +
                    ": it is an older copy of the device, or the same one that another process "
                    "has started; what was acknowledged since is not on it");
}

}  // namespace

Result<bool> apply(MonState& state, const CreateOsd& command) {
  if (command.device == Uuid{}) return refuse(MonError::bad_request, "a device id of zeros");
  SARSEN_TRY(check_name("node", command.node));
  for (const auto& [id, osd] : state.map.osds) {
    if (osd.device == command.device) return false;
  }
  if (state.map.osds.size() >= MapBounds::kOsdsMax) {
    return refuse(MonError::bad_request, "there are " + std::to_string(MapBounds::kOsdsMax) +
                                             " OSDs already, as many as there may be");
  }
  const OsdId id(state.osd_next++);
  state.map.osds.emplace(id, OsdEntry{.id = id, .device = command.device, .node = command.node});
  spread_groups(state);
  return true;
}

Result<bool> apply(MonState& state, const ForgetOsd& command) {
  const auto osd = osd_of(state, command.osd, command.device);
  if (!osd) return fail(osd.error());
  if ((*osd)->incarnation != 0) {
    return refuse(MonError::in_use, title(command.osd) + " has been running; it may hold data");
  }
  for (const auto& [id, pool] : state.map.pools) {
    const bool member = std::ranges::any_of(pool.groups, [&](const PgConfiguration& group) {
      return std::ranges::find(group.in_sync, command.osd) != group.in_sync.end();
    });
    if (member && pool_has_images(state, id)) {
      return refuse(MonError::in_use, title(command.osd) + " has placement groups of pool " +
                                          pool.name + ", which has images");
    }
  }
  state.map.osds.erase(command.osd);
  spread_groups(state);
  return true;
}

Result<bool> apply(MonState& state, const OsdBoot& command) {
  if (command.cluster != state.map.cluster) {
    return refuse(MonError::wrong_cluster,
                  title(command.osd) + ": its device was formatted for another cluster");
  }
  if (command.boot_id == 0) return refuse(MonError::bad_request, "a boot id of 0");
  if (command.address.empty() || command.address.size() > MapBounds::kAddressBytesMax) {
    return refuse(MonError::bad_request, title(command.osd) + ": its address is empty or too long");
  }
  SARSEN_TRY(check_name("node", command.node));
  const auto found = osd_of(state, command.osd, command.device);
  if (!found) return fail(found.error());
  OsdEntry& osd = **found;
  const auto repeated = check_start_counter(state, osd, command);
  if (!repeated) return fail(repeated.error());
  if (*repeated) {
    if (osd.up && osd.address == command.address) return false;
    osd.up = true;
    osd.address = command.address;
    return true;
  }
  osd.address = command.address;
  osd.node = command.node;
  osd.start_counter = command.start_counter;
  ++osd.incarnation;
  osd.up = true;
  state.boots[osd.id] = command.boot_id;
  for (auto& [id, pool] : state.map.pools) {
    for (PgConfiguration& group : pool.groups) {
      if (group.in_sync.empty() || group.in_sync[0] != osd.id) continue;
      // Also when nothing else changes: sequences of this run must not look like those of the last.
      group.epoch = group.epoch.next();
      group.active = true;
    }
  }
  return true;
}

Result<bool> apply(MonState& state, const MarkOsd& command) {
  const auto found = state.map.osds.find(command.osd);
  if (found == state.map.osds.end()) return false;
  OsdEntry& osd = found->second;
  if (osd.incarnation != command.incarnation || osd.up == command.up) return false;
  osd.up = command.up;
  return true;
}

}  // namespace sarsen::rules
