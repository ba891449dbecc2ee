// MapSource: the newest cluster map that this shard knows, and a place to wait for a newer one.
//
// Implemented by a subscription to the mon (programs) and by a value (tests, simulator). With no
// mon to be reached it keeps what it has: steady-state I/O does not need the mon.
//
// Shard      One. Borrowed by sessions, services and replicas, which it outlives.
// Memory     Maps are shared and never change; hold one for as long as a decision takes, and look
//            again after each wait.
#pragma once

#include <memory>

#include "dataplane/placement/cluster_map.h"
#include "dataplane/runtime/cancel.h"
#include "dataplane/runtime/condition.h"
#include "dataplane/runtime/task.h"

namespace sarsen {

class MapSource {
 public:
  explicit MapSource(Executor& executor)
      : current_(std::make_shared<const ClusterMap>()), newer_(executor) {}
  virtual ~MapSource() = default;
  MapSource(const MapSource&) = delete;
  MapSource& operator=(const MapSource&) = delete;

  // Epoch 0 and empty before the first map came.
  const std::shared_ptr<const ClusterMap>& current() const { return current_; }
  // Waits until current() is of a newer epoch than `seen`. Error: the token's reason.
  Task<Result<void>> wait_newer(MapEpoch seen, CancelToken token = {}) {
    return newer_.wait_until([this, seen] { return current_->epoch > seen; }, token);
  }
  // A caller met `seen` and was told that there is something newer (stale_epoch, not_primary):
  // hurries the next look, where that makes sense.
  virtual void suspect(MapEpoch seen) = 0;

 protected:
  // On the shard. Older maps are ignored.
  void publish(std::shared_ptr<const ClusterMap> map) {
    if (map->epoch <= current_->epoch) return;
    current_ = std::move(map);
    newer_.notify_all();
  }

 private:
  std::shared_ptr<const ClusterMap> current_;
  Condition newer_;
};

// A map that its owner sets.
class FixedMap final : public MapSource {
 public:
  using MapSource::MapSource;
  void set(ClusterMap map) { publish(std::make_shared<const ClusterMap>(std::move(map))); }
  void suspect(MapEpoch) override {}
};

}  // namespace sarsen
