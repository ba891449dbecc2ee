// MapSubscription: the cluster map as the mon has it, kept up to date by a thread; and
// SubscribedMap, the MapSource that each shard has of it.
//
//   auto subscription = MapSubscription::start({.mon = address}, log);     // main()
//   SubscribedMap map(**subscription, context.reactor);                    // on each shard
//
// Lifecycle  start() gives at once, before there is a map. stop(), from any thread, ends the thread
//            promptly; the destructor does it too. Each SubscribedMap dies on its shard, before its
//            reactor and before the subscription.
// Mon away   The last map stays; the thread tries again, with delays of reconnect_min, doubled up
//            to reconnect_max, and resumes from its epoch.
// Errors     None for users. A map of another cluster than the first is refused and logged.
#pragma once

#include <atomic>
#include <memory>

#include "dataplane/base/log.h"
#include "dataplane/membership/map_source.h"
#include "dataplane/runtime/uring/reactor.h"

namespace sarsen {

struct MapSubscriptionOptions {
  Address mon;  // "unix:PATH" or "tcp:HOST:PORT"
  // The only cluster whose map is believed; all zeros: that of the first map.
  wire::ClusterId cluster{};
  Duration reconnect_min = milliseconds(100);
  Duration reconnect_max = seconds(2);
};

class SubscribedMap;

class MapSubscription {
 public:
  // Error: bad_request (address).
  static Result<std::unique_ptr<MapSubscription>> start(MapSubscriptionOptions options,
                                                        Logger log = {});
  ~MapSubscription();

  void stop();
  // Any thread. Never null; of epoch 0 before the first.
  std::shared_ptr<const ClusterMap> current() const;
  // True while the mon answers.
  bool connected() const;

 private:
  friend class SubscribedMap;
  struct State;
  explicit MapSubscription(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

class SubscribedMap final : public MapSource, private WorkSource {
 public:
  // On the shard of `reactor`. Starts with what the subscription has.
  SubscribedMap(MapSubscription& subscription, Reactor& reactor);
  ~SubscribedMap() override;

  // The mon pushes: only ends a delay between two attempts to reach it.
  void suspect(MapEpoch seen) override;

 private:
  friend class MapSubscription;
  // The subscription's thread.
  void arrived();
  // The shard.
  bool pending() const override { return arrived_.load(); }
  void drain() override;

  MapSubscription& subscription_;
  Reactor& reactor_;
  std::atomic<bool> arrived_{false};
};

}  // namespace sarsen
