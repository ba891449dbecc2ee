// Mon: the state machine around its store: one command after the other, each durable before anybody
// learns of it; the latest reports of OSDs; and those who follow the map.
//
// Threads    Any. Commands wait for each other, and for the store's synced write.
// Owns       The state, the reports, the recent updates.   Borrows: the store, its only user.
// Bounded by kUpdatesKept updates; a follower that lags further behind gets a whole map.
// Errors     MonError. After a failed write to the store every call answers store_failed, and
//            failed() is true: the process ends, its successor loads what is there.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "dataplane/base/log.h"
#include "dataplane/mon/machine/health.h"
#include "dataplane/mon/machine/map_machine.h"
#include "dataplane/mon/store/map_store.h"

namespace sarsen {

// Told of every new map, on the thread of whoever changed it, with no lock of the Mon held.
class MapFollower {
 public:
  virtual ~MapFollower() = default;
  virtual void map_changed() = 0;
  // Ends for good: the mon is stopping.
  virtual void end() = 0;
};

// Where a follower stands.
struct FollowedMap {
  wire::ClusterId cluster{};
  std::uint64_t store_incarnation = 0;
  MapEpoch epoch{};
};

class Mon {
 public:
  static constexpr std::size_t kUpdatesKept = 1024;
  using WallTime = std::function<std::int64_t()>;
  using State = std::shared_ptr<const MonState>;

  // Error: the store's.
  static Result<std::unique_ptr<Mon>> start(MapStore& store, WallTime wall_time, Logger log);
  // Without followers left.
  ~Mon();

  // Decides, makes durable, tells the followers; gives the state that has it.
  Result<State> run(const MonCommand& command);
  State state() const;

  // The next step from where a follower is: an update, or a whole map; nothing when it is there.
  std::optional<MapUpdate> update_after(const FollowedMap& at) const;
  void follow(std::shared_ptr<MapFollower> follower);
  void unfollow(const MapFollower* follower);
  // No follower from now on; ends those that are.
  void stop();

  // Error: gone, not_found.
  Result<MapEpoch> report(const OsdReport& report);
  // `elapsed` since the last one, of time in which the mon ran: marks OSDs that were silent.
  void tick(Duration elapsed);
  ClusterStatus status() const;
  bool failed() const;

 private:
  // Of the current boot of an OSD.
  struct Heard {
    std::optional<OsdReport> latest;
    std::uint64_t incarnation = 0;
    Duration silent{0};
  };

  Mon(MapStore& store, WallTime wall_time, Logger log, State state);
  Result<State> commit(const MonCommand& command);
  void tell_followers();
  Heard& heard_of(const OsdEntry& osd);

  MapStore& store_;
  const WallTime wall_time_;
  const Logger log_;

  mutable std::mutex mutex_;
  State state_;
  std::deque<std::shared_ptr<const MapUpdate>> updates_;  // each continues the one before
  std::map<OsdId, Heard> heard_;
  bool failed_ = false;

  std::mutex followers_mutex_;
  std::vector<std::shared_ptr<MapFollower>> followers_;
  bool stopping_ = false;
};

}  // namespace sarsen
