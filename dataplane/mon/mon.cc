#include "dataplane/mon/mon.h"

#include <algorithm>
#include <utility>

namespace sarsen {

Result<std::unique_ptr<Mon>> Mon::start(MapStore& store, WallTime wall_time, Logger log) {
  auto state = store.load();
  if (!state) return fail(std::move(state).error());
  return std::unique_ptr<Mon>(new Mon(store, std::move(wall_time), std::move(log),
                                      std::make_shared<const MonState>(*std::move(state))));
}

Mon::Mon(MapStore& store, WallTime wall_time, Logger log, State state)
    : store_(store),
      wall_time_(std::move(wall_time)),
      log_(std::move(log)),
      state_(std::move(state)) {}

Mon::~Mon() {
  SARSEN_ASSERT(followers_.empty(), "followers end before their mon");
}

Mon::State Mon::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

bool Mon::failed() const {
  const std::lock_guard lock(mutex_);
  return failed_;
}

// --------------------------------------------------------------------------------------- commands

Result<Mon::State> Mon::run(const MonCommand& command) {
  MapEpoch before;
  Result<State> after = [&] {
    const std::lock_guard lock(mutex_);
    before = state_->map.epoch;
    return commit(command);
  }();
  if (after && (*after)->map.epoch != before) tell_followers();
  return after;
}

// Under the lock.
Result<Mon::State> Mon::commit(const MonCommand& command) {
  if (failed_) return fail(make_error(MonError::store_failed, "the mon is about to end"));
  auto next = decide(*state_, command, wall_time_());
  if (!next) return fail(std::move(next).error());
  if (next->map.epoch == state_->map.epoch) return state_;
  if (auto written = store_.commit(*state_, *next); !written) {
    // Whether it took effect is not known, so nothing can be decided on top of it.
    failed_ = true;
    log_.error("a change of the map could not be made durable", {{"error", written.error()}});
    return fail(make_error(MonError::store_failed, written.error().message()));
  }
  auto update = std::make_shared<const MapUpdate>(difference(state_->map, next->map));
  updates_.push_back(std::move(update));
  if (updates_.size() > kUpdatesKept) updates_.pop_front();
  state_ = std::make_shared<const MonState>(*std::move(next));
  return state_;
}

// -------------------------------------------------------------------------------------- followers

std::optional<MapUpdate> Mon::update_after(const FollowedMap& at) const {
  const std::lock_guard lock(mutex_);
  const ClusterMap& map = state_->map;
  const bool same = at.cluster == map.cluster && at.store_incarnation == map.store_incarnation;
  if (same && at.epoch == map.epoch) return std::nullopt;
  if (same && at.epoch < map.epoch) {
    const std::uint64_t behind = map.epoch.value - at.epoch.value;
    if (behind <= updates_.size()) return *updates_[updates_.size() - behind];
  }
  return difference(ClusterMap(), map);
}

void Mon::follow(std::shared_ptr<MapFollower> follower) {
  {
    const std::lock_guard lock(followers_mutex_);
    if (!stopping_) {
      followers_.push_back(std::move(follower));
      return;
    }
  }
  follower->end();
}

void Mon::unfollow(const MapFollower* follower) {
  const std::lock_guard lock(followers_mutex_);
  std::erase_if(followers_, [&](const auto& entry) { return entry.get() == follower; });
}

void Mon::tell_followers() {
  std::vector<std::shared_ptr<MapFollower>> followers;
  {
    const std::lock_guard lock(followers_mutex_);
    followers = followers_;
  }
  for (const auto& follower : followers) follower->map_changed();
}

void Mon::stop() {
  std::vector<std::shared_ptr<MapFollower>> followers;
  {
    const std::lock_guard lock(followers_mutex_);
    stopping_ = true;
    followers = followers_;
  }
  for (const auto& follower : followers) follower->end();
}

// ------------------------------------------------------------------------------------------- OSDs

// Under the lock.
Mon::Heard& Mon::heard_of(const OsdEntry& osd) {
  Heard& heard = heard_[osd.id];
  if (heard.incarnation != osd.incarnation) heard = {.latest = {}, .incarnation = osd.incarnation};
  return heard;
}

Result<MapEpoch> Mon::report(const OsdReport& report) {
  const std::string name = "osd." + std::to_string(report.osd.value);
  bool up = false;
  {
    const std::lock_guard lock(mutex_);
    const OsdEntry* const osd = state_->map.find_osd(report.osd);
    if (osd == nullptr) return fail(make_error(MonError::not_found, name));
    if (osd->incarnation != report.incarnation) {
      return fail(make_error(MonError::gone, name + " booted anew, as incarnation " +
                                                 std::to_string(osd->incarnation) + ", and not " +
                                                 std::to_string(report.incarnation)));
    }
    Heard& heard = heard_of(*osd);
    heard.silent = Duration(0);
    heard.latest = report;
    heard.latest->purged.clear();
    up = osd->up;
  }
  if (up == report.stopping) {
    log_.info(report.stopping ? "an OSD is stopping" : "an OSD is heard again",
              {{"osd", report.osd}});
    SARSEN_TRY(run(MarkOsd{report.osd, report.incarnation, !report.stopping}));
  }
  if (!report.purged.empty()) {
    SARSEN_TRY(run(NotePurged{report.osd, report.incarnation, report.purged}));
  }
  return state()->map.epoch;
}

void Mon::tick(Duration elapsed) {
  std::vector<MarkOsd> silent;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, osd] : state_->map.osds) {
      Heard& heard = heard_of(osd);
      heard.silent = Duration(heard.silent.value + elapsed.value);
      if (osd.up && heard.silent > kReportSilenceMax)
        silent.push_back({id, osd.incarnation, false});
    }
  }
  for (const MarkOsd& mark : silent) {
    log_.warning("an OSD is silent and counts as down", {{"osd", mark.osd}});
    // A failure shows in failed().
    if (auto done = run(mark); !done)
      log_.error("marking an OSD failed", {{"error", done.error()}});
  }
}

ClusterStatus Mon::status() const {
  const std::lock_guard lock(mutex_);
  std::map<OsdId, OsdSeen> seen;
  for (const auto& [id, heard] : heard_) {
    const OsdEntry* const osd = state_->map.find_osd(id);
    if (osd == nullptr || osd->incarnation != heard.incarnation || !heard.latest) continue;
    seen.emplace(id, OsdSeen{.report = *heard.latest, .age = heard.silent});
  }
  return cluster_status(state_->map, seen);
}

}  // namespace sarsen
