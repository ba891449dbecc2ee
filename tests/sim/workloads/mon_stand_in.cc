#include "tests/sim/workloads/mon_stand_in.h"

#include <algorithm>
#include <utility>

namespace sarsen::sim {

MonStandIn::MonStandIn(Simulator& simulator, ClusterMap first)
    : simulator_(simulator), rng_(simulator.split_rng()), map_(std::move(first)) {}

void MonStandIn::change(const std::function<void(ClusterMap&)>& how) {
  how(map_);
  publish();
}

void MonStandIn::publish() {
  map_.epoch = map_.epoch.next();
  std::erase_if(followers_, [](const Follower& follower) {
    return !follower.node->up() || follower.node->incarnation() != follower.incarnation;
  });
  for (const Follower& follower : followers_) send(follower);
}

void MonStandIn::follow(SimNode& node, FixedMap& to) {
  followers_.push_back({.node = &node, .incarnation = node.incarnation(), .to = &to});
  send(followers_.back());
}

void MonStandIn::send(const Follower& follower) {
  const Duration delay(
      static_cast<std::int64_t>(rng_.below(static_cast<std::uint64_t>(delay_max_.value))));
  simulator_.call_after(delay, [this, follower, map = map_] {
    if (!follower.node->up() || follower.node->incarnation() != follower.incarnation) return;
    simulator_.run_at(follower.node->place(ShardId(0)), [&] { follower.to->set(map); });
  });
}

AttachEpoch MonStandIn::attach(ImageId image, HolderId holder, AttachMode mode) {
  AttachEpoch given;
  change([&](ClusterMap& map) {
    ImageEntry& entry = map.images.at(image);
    entry.last_attach_epoch = entry.last_attach_epoch.next();
    given = entry.last_attach_epoch;
    entry.attachments.push_back({.holder = holder, .epoch = given, .mode = mode});
  });
  return given;
}

MapEpoch MonStandIn::detach(ImageId image, HolderId holder) {
  change([&](ClusterMap& map) {
    std::erase_if(map.images.at(image).attachments,
                  [&](const AttachmentEntry& entry) { return entry.holder == holder; });
  });
  return map_.epoch;
}

bool MonStandIn::acted_on(MapEpoch epoch) const {
  return std::ranges::all_of(acting_on_, [&](const auto& entry) { return entry.second >= epoch; });
}

bool MonStandIn::purged(ImageId image) const {
  const ImageEntry& entry = map_.images.at(image);
  return entry.purged.size() == map_.pools.at(entry.pool).groups.size();
}

// The same boot asked twice is one boot (R5 is the mon's own affair, and not tried here).
Result<OsdBooted> MonStandIn::boot_osd(OsdBoot boot) {
  if (!reachable_) return fail(make_error(MonError::unreachable));
  OsdEntry& entry = map_.osds[boot.osd];
  if (boots_[boot.osd] == boot.boot_id) {
    return OsdBooted{.incarnation = entry.incarnation, .epoch = map_.epoch};
  }
  boots_[boot.osd] = boot.boot_id;
  ++entry.incarnation;
  entry.id = boot.osd;
  entry.device = boot.device;
  entry.address = boot.address;
  entry.start_counter = boot.start_counter;
  entry.up = true;
  for (auto& [id, pool] : map_.pools) {
    for (PgConfiguration& group : pool.groups) {
      group.epoch = group.epoch.next();
      group.in_sync = {boot.osd};
      group.active = true;
    }
  }
  publish();
  acting_on_[boot.osd] = map_.epoch;
  return OsdBooted{.incarnation = entry.incarnation, .epoch = map_.epoch};
}

Result<MapEpoch> MonStandIn::report_osd(OsdReport report) {
  if (!reachable_) return fail(make_error(MonError::unreachable));
  if (report.incarnation != map_.osds[report.osd].incarnation) {
    return fail(make_error(MonError::gone));
  }
  ++reports_;
  last_report_ = report;
  MapEpoch& acting_on = acting_on_[report.osd];
  acting_on = std::max(acting_on, report.map_epoch);
  bool changed = false;
  for (const PurgeDone& done : report.purged) {
    const auto found = map_.images.find(done.image);
    if (found == map_.images.end() || !found->second.purging) continue;
    ImageEntry& image = found->second;
    if (image.purge_generation != done.purge_generation) continue;
    if (std::ranges::find(image.purged, done.group) != image.purged.end()) continue;
    image.purged.push_back(done.group);
    changed = true;
  }
  if (changed) publish();
  return map_.epoch;
}

}  // namespace sarsen::sim
