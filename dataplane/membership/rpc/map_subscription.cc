#include "dataplane/membership/rpc/map_subscription.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "dataplane/membership/proto/mon.grpc.pb.h"
#include "dataplane/membership/rpc/map_proto.h"
#include "dataplane/membership/rpc/mon_channel.h"
#include "dataplane/runtime/uring/signal_mask.h"

namespace sarsen {

struct MapSubscription::State {
  State(MapSubscriptionOptions given, Logger logger)
      : options(std::move(given)), log(std::move(logger)) {}

  const MapSubscriptionOptions options;
  const Logger log;
  std::unique_ptr<v1::Mon::Stub> stub;

  mutable std::mutex mutex;
  std::condition_variable changed;  // stopping, hurry
  bool stopping = false;
  bool hurry = false;
  bool connected = false;
  grpc::ClientContext* stream = nullptr;  // to be cancelled when stopping
  std::shared_ptr<const ClusterMap> map = std::make_shared<const ClusterMap>();
  std::vector<SubscribedMap*> shards;

  std::thread thread;

  void run();
  // Reads one stream to its end. True when a map came.
  bool follow();
  bool take(const v1::MapUpdate& message);
  void publish(std::shared_ptr<const ClusterMap> newer);
  bool expects(const ClusterMap& newer) const;
  // Until the delay has passed, or somebody hurries or stops it.
  void wait(Duration delay);
};

void MapSubscription::State::run() {
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

bool MapSubscription::State::follow() {
  grpc::ClientContext context;
  v1::WatchMapRequest request;
  {
    const std::lock_guard lock(mutex);
    if (stopping) return false;
    stream = &context;
    if (map->epoch != MapEpoch(0)) {
      request.set_cluster(bytes_of(map->cluster));
      request.set_store_incarnation(map->store_incarnation);
      request.set_epoch(map->epoch.value);
    }
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

bool MapSubscription::State::take(const v1::MapUpdate& message) {
  auto update = from_proto(message);
  if (!update) {
    log.error("a map update was refused", {{"error", update.error()}});
    return false;
  }
  std::shared_ptr<const ClusterMap> known;
  {
    const std::lock_guard lock(mutex);
    known = map;
  }
  auto newer = std::make_shared<ClusterMap>(*known);
  if (!apply(*newer, *update)) {
    log.error("a map update does not continue the map that is known",
              {{"epoch", known->epoch}, {"from", update->from}, {"to", update->changed.epoch}});
    return false;
  }
  if (!expects(*newer)) {
    log.error("the mon has the map of another cluster; the last map stays", {{"mon", options.mon}});
    return false;
  }
  publish(std::move(newer));
  return true;
}

bool MapSubscription::State::expects(const ClusterMap& newer) const {
  const wire::ClusterId none{};
  if (options.cluster != none) return newer.cluster == options.cluster;
  const std::lock_guard lock(mutex);
  return map->epoch == MapEpoch(0) || newer.cluster == map->cluster;
}

void MapSubscription::State::publish(std::shared_ptr<const ClusterMap> newer) {
  bool first = false;
  {
    const std::lock_guard lock(mutex);
    first = !std::exchange(connected, true);
    if (newer->epoch > map->epoch) map = newer;
    for (SubscribedMap* const shard : shards) shard->arrived();
  }
  if (first) log.info("following the mon's map", {{"mon", options.mon}, {"epoch", newer->epoch}});
}

void MapSubscription::State::wait(Duration delay) {
  std::unique_lock lock(mutex);
  changed.wait_for(lock, std::chrono::nanoseconds(delay.value),
                   [this] { return stopping || hurry; });
  hurry = false;
}

// --------------------------------------------------------------------------------- subscription

Result<std::unique_ptr<MapSubscription>> MapSubscription::start(MapSubscriptionOptions options,
                                                                Logger log) {
  const auto target = grpc_target(options.mon);
  if (!target) return fail(target.error());
  auto state = std::make_unique<State>(std::move(options), std::move(log));
  state->stub = v1::Mon::NewStub(make_channel(*target));
  State* const running = state.get();
  // Signals are for main().
  const BlockedSignals blocked;
  state->thread = std::thread([running] { running->run(); });
  return std::unique_ptr<MapSubscription>(new MapSubscription(std::move(state)));
}

MapSubscription::MapSubscription(std::unique_ptr<State> state) : state_(std::move(state)) {}

MapSubscription::~MapSubscription() {
  stop();
  SARSEN_ASSERT(state_->shards.empty(), "the maps of shards end before their subscription");
}

void MapSubscription::stop() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    if (state_->stream != nullptr) state_->stream->TryCancel();
    state_->changed.notify_all();
  }
  if (state_->thread.joinable()) state_->thread.join();
}

std::shared_ptr<const ClusterMap> MapSubscription::current() const {
  const std::lock_guard lock(state_->mutex);
  return state_->map;
}

bool MapSubscription::connected() const {
  const std::lock_guard lock(state_->mutex);
  return state_->connected;
}

// --------------------------------------------------------------------------------- on each shard

SubscribedMap::SubscribedMap(MapSubscription& subscription, Reactor& reactor)
    : MapSource(reactor), subscription_(subscription), reactor_(reactor) {
  reactor.add_source(*this);
  const std::lock_guard lock(subscription.state_->mutex);
  subscription.state_->shards.push_back(this);
  if (subscription.state_->map->epoch > MapEpoch(0)) publish(subscription.state_->map);
}

SubscribedMap::~SubscribedMap() {
  const std::lock_guard lock(subscription_.state_->mutex);
  std::erase(subscription_.state_->shards, this);
}

void SubscribedMap::suspect(MapEpoch) {
  const std::lock_guard lock(subscription_.state_->mutex);
  subscription_.state_->hurry = true;
  subscription_.state_->changed.notify_all();
}

void SubscribedMap::arrived() {
  arrived_.store(true);
  reactor_.notify();
}

void SubscribedMap::drain() {
  arrived_.store(false);
  publish(subscription_.current());
}

}  // namespace sarsen
