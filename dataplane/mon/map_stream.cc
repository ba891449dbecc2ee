#include "dataplane/mon/map_stream.h"

#include "dataplane/membership/rpc/map_proto.h"
#include "dataplane/membership/rpc/mon_channel.h"

namespace sarsen {
namespace {

// gRPC may call back on the thread, and before the return, of StartWrite() and Finish(): both are
// called with no lock held.
class MapStream final : public grpc::ServerWriteReactor<v1::MapUpdate>,
                        public MapFollower,
                        public std::enable_shared_from_this<MapStream> {
 public:
  MapStream(Mon& mon, FollowedMap at) : mon_(mon), at_(at) {}

  void start() {
    self_ = shared_from_this();
    mon_.follow(self_);
    map_changed();
  }

  void map_changed() override {
    {
      const std::lock_guard lock(mutex_);
      if (busy_ || ended_) return;
      const auto update = mon_.update_after(at_);
      if (!update) return;
      busy_ = true;
      at_ = {update->changed.cluster, update->changed.store_incarnation, update->changed.epoch};
      message_.Clear();
      to_proto(*update, message_);
    }
    StartWrite(&message_);
  }

  void end() override { finish(to_status(make_error(MonError::stopped))); }

  // gRPC ------------------------------------------------------------------------------------------

  void OnWriteDone(bool ok) override {
    bool finish_now = false;
    {
      const std::lock_guard lock(mutex_);
      busy_ = false;
      finish_now = ended_;
    }
    if (finish_now) return Finish(status_);
    if (!ok) return finish(grpc::Status::CANCELLED);
    map_changed();
  }
  void OnCancel() override { finish(grpc::Status::CANCELLED); }
  void OnDone() override {
    mon_.unfollow(this);
    // The last use of this object, unless a notification holds it.
    const auto self = std::move(self_);
  }

 private:
  // Once. Never beside a StartWrite(): when one is under way, OnWriteDone() finishes.
  void finish(const grpc::Status& status) {
    {
      const std::lock_guard lock(mutex_);
      if (ended_) return;
      ended_ = true;
      status_ = status;
      if (busy_) return;
    }
    Finish(status);
  }

  Mon& mon_;
  std::shared_ptr<MapStream> self_;
  std::mutex mutex_;
  FollowedMap at_;
  bool busy_ = false;  // from the decision to write until OnWriteDone()
  bool ended_ = false;
  grpc::Status status_;  // when ended
  v1::MapUpdate message_;
};

// Of a request whose map cannot be told from none: it gets a whole one.
FollowedMap place_of(const v1::WatchMapRequest& request) {
  const auto cluster = cluster_from(request.cluster());
  if (!cluster) return {};
  return {*cluster, request.store_incarnation(), MapEpoch(request.epoch())};
}

}  // namespace

grpc::ServerWriteReactor<v1::MapUpdate>* start_map_stream(Mon& mon,
                                                          const v1::WatchMapRequest& request) {
  const auto stream = std::make_shared<MapStream>(mon, place_of(request));
  stream->start();
  return stream.get();
}

}  // namespace sarsen
