// MapRelay: the newest map of a process, from whatever thread it comes, on its way to the shards;
// and SubscribedMap, the MapSource that each shard has of it.
//
// Lifecycle  Each SubscribedMap dies on its shard, before its reactor and before the relay
// (assert). Threads    The relay: any. A SubscribedMap: its shard's, but for arrived().
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "dataplane/membership/map_source.h"
#include "dataplane/runtime/uring/reactor.h"

namespace sarsen {

class SubscribedMap;

class MapRelay {
 public:
  MapRelay() = default;
  virtual ~MapRelay();
  MapRelay(const MapRelay&) = delete;
  MapRelay& operator=(const MapRelay&) = delete;

  // Never null; of epoch 0 before the first.
  std::shared_ptr<const ClusterMap> current() const;
  // An older map than the newest is ignored.
  void publish(std::shared_ptr<const ClusterMap> map);
  // A shard was told that there is something newer.
  virtual void hurry() {}

 private:
  friend class SubscribedMap;
  void join(SubscribedMap& shard);
  void leave(SubscribedMap& shard);

  mutable std::mutex mutex_;
  std::shared_ptr<const ClusterMap> map_ = std::make_shared<const ClusterMap>();
  std::vector<SubscribedMap*> shards_;
};

class SubscribedMap final : public MapSource, private WorkSource {
 public:
  // On the shard of `reactor`. Starts with what the relay has.
  SubscribedMap(MapRelay& relay, Reactor& reactor);
  ~SubscribedMap() override;

  void suspect(MapEpoch) override { relay_.hurry(); }

 private:
  friend class MapRelay;
  // Any thread, under the relay's lock: the object is alive.
  void arrived() {
    arrived_.store(true);
    reactor_.notify();
  }
  // The shard.
  bool pending() const override { return arrived_.load(); }
  void drain() override;

  MapRelay& relay_;
  Reactor& reactor_;
  std::atomic<bool> arrived_{false};
};

}  // namespace sarsen
