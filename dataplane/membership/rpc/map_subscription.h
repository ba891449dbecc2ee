// MapSubscription: the relay of a process, kept up to date with the mon by a thread.
//
//   auto subscription = MapSubscription::start({.mon = address}, log);     // main()
//   SubscribedMap map(**subscription, context.reactor);                    // on each shard
//
// Lifecycle  start() gives at once, before there is a map. stop(), from any thread, ends the thread
//            promptly; the destructor does it too.
// Mon away   The last map stays; the thread tries again, with delays of reconnect_min, doubled up
//            to reconnect_max, and resumes from its epoch.
// Errors     None for users. A map of another cluster than the first is refused and logged.
#pragma once

#include <memory>

#include "dataplane/base/log.h"
#include "dataplane/membership/rpc/map_relay.h"

namespace sarsen {

struct MapSubscriptionOptions {
  Address mon;  // "unix:PATH" or "tcp:HOST:PORT"
  // The only cluster whose map is believed; all zeros: that of the first map.
  wire::ClusterId cluster{};
  Duration reconnect_min = milliseconds(100);
  Duration reconnect_max = seconds(2);
};

class MapSubscription final : public MapRelay {
 public:
  // Error: bad_request (address).
  static Result<std::unique_ptr<MapSubscription>> start(MapSubscriptionOptions options,
                                                        Logger log = {});
  ~MapSubscription() override;

  void stop();
  // True while the mon answers.
  bool connected() const;
  // Ends a delay between two attempts to reach the mon; it pushes what is new otherwise.
  void hurry() override;

 private:
  struct Thread;
  explicit MapSubscription(std::unique_ptr<Thread> thread);
  std::unique_ptr<Thread> thread_;
};

}  // namespace sarsen
