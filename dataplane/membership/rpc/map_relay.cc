#include "dataplane/membership/rpc/map_relay.h"

#include <utility>

namespace sarsen {

MapRelay::~MapRelay() {
  SARSEN_ASSERT(shards_.empty(), "the maps of shards end before their relay");
}

std::shared_ptr<const ClusterMap> MapRelay::current() const {
  const std::lock_guard lock(mutex_);
  return map_;
}

void MapRelay::publish(std::shared_ptr<const ClusterMap> map) {
  const std::lock_guard lock(mutex_);
  if (map->epoch <= map_->epoch) return;
  map_ = std::move(map);
  for (SubscribedMap* const shard : shards_) shard->arrived();
}

void MapRelay::join(SubscribedMap& shard) {
  const std::lock_guard lock(mutex_);
  shards_.push_back(&shard);
}

void MapRelay::leave(SubscribedMap& shard) {
  const std::lock_guard lock(mutex_);
  std::erase(shards_, &shard);
}

SubscribedMap::SubscribedMap(MapRelay& relay, Reactor& reactor)
    : MapSource(reactor), relay_(relay), reactor_(reactor) {
  reactor.add_source(*this);
  relay.join(*this);
  publish(relay.current());
}

SubscribedMap::~SubscribedMap() {
  relay_.leave(*this);
}

void SubscribedMap::drain() {
  arrived_.store(false);
  publish(relay_.current());
}

}  // namespace sarsen
