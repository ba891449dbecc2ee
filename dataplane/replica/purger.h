// Purger: gives back the objects of images that were removed or made smaller, in the groups that
// this OSD leads, and remembers what is done until the mon knows it.
//
// Level-triggered: it looks at the map, and does what is not done. After a restart it looks again;
// what was given back already costs nothing.
//
// Lifecycle  start(); `co_await stop()` before destruction.   Shard: that of the store.
// Bounded    One group at a time, objects_at_once objects of it; a page of names in memory. What
//            fails is tried again after retry_delay.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include "dataplane/membership/map_source.h"
#include "dataplane/membership/mon_api.h"
#include "dataplane/replica/admission.h"
#include "dataplane/runtime/periodic.h"
#include "dataplane/store/store.h"

namespace sarsen {

struct PurgeLimits {
  std::uint32_t objects_at_once = 4;
  std::uint32_t page_objects = 256;
  Duration retry_delay = seconds(5);
};

// What is to be given back, as one map said.
struct PurgeTask {
  ImageId image;
  std::uint64_t generation = 0;
  wire::PgAddress pg;
};

// Where the objects are. Implemented by the service, which has the locks.
class PurgeTarget {
 public:
  // Blocks of the object from `first_block` on read as zeros and take no space; 0: all of it.
  // Error: stale_epoch when the task is not what the map says any more.
  virtual Task<Result<void>> purge_object(PurgeTask task, ObjectKey key,
                                          std::uint32_t first_block) = 0;
  // done() has grown.
  virtual void purge_ended() = 0;

 protected:
  ~PurgeTarget() = default;
};

class Purger {
 public:
  Purger(Env& env, MapSource& map, Store& store, PurgeTarget& target, OsdRun run,
         PurgeLimits limits);

  void start() { work_.start(); }
  Task<void> stop() { return work_.stop(); }
  // The map has changed.
  void look() { work_.trigger(); }
  std::vector<PurgeDone> done() const;

 private:
  using Name = std::tuple<ImageId, std::uint64_t, PoolId, PgNumber>;

  Task<void> work(CancelToken token);
  std::vector<PurgeTask> tasks() const;
  Task<Result<void>> purge(PurgeTask task, CancelToken token);
  Task<Result<void>> purge_page(PurgeTask task, std::vector<ObjectKey> objects);

  Env& env_;
  MapSource& map_;
  Store& store_;
  PurgeTarget& target_;
  const OsdRun run_;
  const PurgeLimits limits_;
  std::set<Name> done_;
  Periodic work_;
};

}  // namespace sarsen
