// CachedMap: the cluster map of an upstream source, kept in a file too, so that a blockd that
// starts while no mon can be reached goes on with what its predecessor knew: steady-state I/O needs
// no mon.
//
// The file lies on a tmpfs: after a boot nothing is mapped, and the mon is asked. It is replaced as
// a whole; one that cannot be read is as good as none.
//
// Lifecycle  start(), then `co_await stop()` before the destructor.
// Shard      One, that of the upstream, which it borrows. The file is written on a thread of the
//            pool.
#pragma once

#include <string>

#include "dataplane/base/log.h"
#include "dataplane/membership/map_source.h"
#include "dataplane/runtime/env.h"
#include "dataplane/runtime/scope.h"

namespace sarsen::blockd {

class CachedMap final : public MapSource {
 public:
  CachedMap(Env& env, MapSource& upstream, std::string path, Logger log);

  // `use_kept`: something is mapped that the kept map belongs to.
  void start(bool use_kept);
  Task<void> stop();
  // Whether current() is what the mon said to this process, and not what an earlier one kept.
  bool confirmed() const { return confirmed_; }
  void suspect(MapEpoch seen) override { upstream_.suspect(seen); }

 private:
  void load();
  Task<void> follow();

  Env& env_;
  MapSource& upstream_;
  const std::string path_;
  Logger log_;
  bool confirmed_ = false;
  CancelSource stopping_;
  Scope following_;
};

}  // namespace sarsen::blockd
