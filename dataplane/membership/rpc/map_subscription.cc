#include "dataplane/membership/rpc/map_subscription.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "dataplane/membership/proto/mon.grpc.pb.h"
#include "dataplane/membership/rpc/map_proto.h"
#include "dataplane/membership/rpc/mon_channel.h"
#include "dataplane/runtime/uring/signal_mask.h"

namespace sarsen {

struct MapSubscription::Thread {
  Thread(MapSubscriptionOptions given, Logger logger)
      : options(std::move(given)), log(std::move(logger)) {}

  const MapSubscriptionOptions options;
  const Logger log;
  std::unique_ptr<v1::Mon::Stub> stub;
  MapRelay* relay = nullptr;  // what it feeds; set before it runs

  mutable std::mutex mutex;
  std::condition_variable changed;  // stopping, hurried
  bool stopping = false;
  bool hurried = false;
  bool connected = false;
  grpc::ClientContext* stream = nullptr;  // to be cancelled when stopping

  std::thread thread;

  void run();
  // Reads one stream to its end. True when a map came.
  bool follow();
  bool take(const v1::MapUpdate& message);
  bool expects(const ClusterMap& known, const ClusterMap& newer) const;
  // Until the delay has passed, or somebody hurries or stops it.
  void wait(Duration delay);
};

void MapSubscription::Thread::run() {
  Duration delay = options.reconnect_min;
  while (true) {
    if (follow()) delay = options.reconnect_min;
    {
      const std::lock_guard lock(mutex);
      if (stopping) return;
    }
    wait(delay);
    delay = std::min(delay * 2, options.reconnect_max);
  }
}

bool MapSubscription::Thread::follow() {
  grpc::ClientContext context;
  v1::WatchMapRequest request;
  if (const auto map = relay->current(); map->epoch != MapEpoch(0)) {
    request.set_cluster(bytes_of(map->cluster));
    request.set_store_incarnation(map->store_incarnation);
    request.set_epoch(map->epoch.value);
  }
  {
    const std::lock_guard lock(mutex);
    if (stopping) return false;
    stream = &context;
  }
  const auto reader = stub->WatchMap(&context, request);
  bool came = false;
  v1::MapUpdate message;
  while (reader->Read(&message)) {
    if (!take(message)) {
      context.TryCancel();
      break;
    }
    came = true;
  }
  const grpc::Status status = reader->Finish();
  bool was_connected = false;
  {
    const std::lock_guard lock(mutex);
    stream = nullptr;
    was_connected = std::exchange(connected, false);
    if (stopping) return came;
  }
  if (was_connected) {
    log.warning("lost the mon; the last map stays",
                {{"mon", options.mon}, {"error", status.error_message()}});
  }
  return came;
}

bool MapSubscription::Thread::take(const v1::MapUpdate& message) {
  auto update = from_proto(message);
  if (!update) {
    log.error("a map update was refused", {{"error", update.error()}});
    return false;
  }
  const std::shared_ptr<const ClusterMap> known = relay->current();
  auto newer = std::make_shared<ClusterMap>(*known);
  if (!apply(*newer, *update)) {
    log.error("a map update does not continue the map that is known",
              {{"epoch", known->epoch}, {"from", update->from}, {"to", update->changed.epoch}});
    return false;
  }
  if (!expects(*known, *newer)) {
    log.error("the mon has the map of another cluster; the last map stays", {{"mon", options.mon}});
    return false;
  }
  const MapEpoch epoch = newer->epoch;
  relay->publish(std::move(newer));
  bool first = false;
  {
    const std::lock_guard lock(mutex);
    first = !std::exchange(connected, true);
  }
  if (first) log.info("following the mon's map", {{"mon", options.mon}, {"epoch", epoch}});
  return true;
}

bool MapSubscription::Thread::expects(const ClusterMap& known, const ClusterMap& newer) const {
  const wire::ClusterId none{};
  if (options.cluster != none) return newer.cluster == options.cluster;
  return known.epoch == MapEpoch(0) || newer.cluster == known.cluster;
}

void MapSubscription::Thread::wait(Duration delay) {
  std::unique_lock lock(mutex);
  changed.wait_for(lock, std::chrono::nanoseconds(delay.value),
                   [this] { return stopping || hurried; });
  hurried = false;
}

// --------------------------------------------------------------------------------- subscription

Result<std::unique_ptr<MapSubscription>> MapSubscription::start(MapSubscriptionOptions options,
                                                                Logger log) {
  const auto target = grpc_target(options.mon);
  if (!target) return fail(target.error());
  auto thread = std::make_unique<Thread>(std::move(options), std::move(log));
  thread->stub = v1::Mon::NewStub(make_channel(*target));
  Thread* const running = thread.get();
  std::unique_ptr<MapSubscription> subscription(new MapSubscription(std::move(thread)));
  running->relay = subscription.get();
  // Signals are for main().
  const BlockedSignals blocked;
  running->thread = std::thread([running] { running->run(); });
  return subscription;
}

MapSubscription::MapSubscription(std::unique_ptr<Thread> thread) : thread_(std::move(thread)) {}

MapSubscription::~MapSubscription() {
  stop();
}

void MapSubscription::stop() {
  {
    const std::lock_guard lock(thread_->mutex);
    thread_->stopping = true;
    if (thread_->stream != nullptr) thread_->stream->TryCancel();
    thread_->changed.notify_all();
  }
  if (thread_->thread.joinable()) thread_->thread.join();
}

bool MapSubscription::connected() const {
  const std::lock_guard lock(thread_->mutex);
  return thread_->connected;
}

void MapSubscription::hurry() {
  const std::lock_guard lock(thread_->mutex);
  thread_->hurried = true;
  thread_->changed.notify_all();
}

}  // namespace sarsen
