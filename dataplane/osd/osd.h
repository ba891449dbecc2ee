// Osd: one device in service: its store, the groups that it leads, and what it tells the mon.
//
// Lifecycle  run() once: opens the store, boots at the mon (waiting for it as long as it is away),
//            serves, and ends cleanly when the token is cancelled. It may be killed at any moment.
// Shard      One. Calls of the mon block, on threads of env.blocking.
// Borrows    Everything that it is given.
// Device     A device that fails takes no more writes; it is read on, reported as read-only, and
//            never a reason to end.
// Errors     run(): why it could not start or go on: the store does not open, the device belongs to
//            no cluster, the mon refuses the boot, the address is taken, a later boot is known.
//
// Invariants
//   I-OSD-1  Nobody is served before the map has this boot: the mon has raised the epochs of the
//            groups by then, so no (epoch, sequence) is issued twice (I-MAP-1).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "dataplane/base/log.h"
#include "dataplane/membership/mon_api.h"
#include "dataplane/replica/image_service.h"
#include "dataplane/wire/rpc_server.h"

namespace sarsen {

struct OsdLimits {
  StoreLimits store;
  ImageServiceLimits service;
  wire::RpcServerLimits server;
  std::uint64_t client_bytes_max = 32 * kMiB;  // in flight, for each connection
  Duration report_interval = kReportInterval;
  Duration boot_delay_first = milliseconds(200);
  Duration boot_delay_max = seconds(2);
  // How fast the device is read to find rot, in the background; 0: not at all.
  std::uint64_t scrub_bytes_per_second = 0;
  Duration scrub_first_after = seconds(600);
  Duration scrub_pause = seconds(24 * 3600);  // between two passes
};

struct OsdPlace {
  Address listen;
  Address advertised;  // what clients connect to; empty: `listen`
  std::string node;    // name of the machine
};

class Osd {
 public:
  Osd(Env& env, Disk& disk, BlockingDisk& blocking_disk, MapSource& map, MonApi& mon,
      OsdPlace place, OsdLimits limits, Logger log);
  ~Osd();

  Task<Result<void>> run(CancelToken stop);

  // Once it serves.
  ImageService* service() { return service_.get(); }
  Store* store() { return store_.get(); }

 private:
  Task<Result<void>> open();
  Task<Result<void>> serve(CancelToken stop);
  Task<void> end();
  Result<void> check_address();
  Task<Result<OsdBooted>> boot(CancelToken stop);
  Task<void> report_until_stopped();
  Task<Result<void>> report(bool stopping);
  OsdReport make_report(bool stopping) const;
  Task<void> scrub_again_and_again();
  void note_health();
  OsdId id() const { return OsdId(store_->superblock().osd_id); }

  Env& env_;
  Disk& disk_;
  BlockingDisk& blocking_disk_;
  MapSource& map_;
  MonApi& mon_;
  const OsdPlace place_;
  const OsdLimits limits_;
  Logger log_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<ImageService> service_;
  std::unique_ptr<wire::RpcServer> server_;
  OsdBooted booted_;
  CancelSource ending_;
  std::optional<Error> failure_;  // why it cannot go on
  bool mon_answers_ = true;
  bool read_only_ = false;
  Scope scope_;
};

}  // namespace sarsen
