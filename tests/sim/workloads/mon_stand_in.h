// MonStandIn: what OSDs and image sessions need of a mon, without one: it keeps a map, takes boots
// and reports as the mon does, and hands maps to whoever follows it, each after a while of its own.
//
// Lives outside of all nodes, and never crashes. Calls take effect at once.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dataplane/membership/map_source.h"
#include "dataplane/membership/mon_api.h"
#include "tests/sim/sim_node.h"
#include "tests/sim/simulator.h"

namespace sarsen::sim {

class MonStandIn final : public MonApi {
 public:
  MonStandIn(Simulator& simulator, ClusterMap first);

  const ClusterMap& map() const { return map_; }
  // Changes the map and sends it out.
  void change(const std::function<void(ClusterMap&)>& how);
  // Every report and every boot answers `unreachable` from now on, or not any more.
  void set_reachable(bool reachable) { reachable_ = reachable; }
  // How long a map is on its way, at most.
  void set_delay_max(Duration most) { delay_max_ = most; }

  // `to` gets the newest map, and all later ones, until it dies: with the node's incarnation.
  void follow(SimNode& node, FixedMap& to);
  // Adds an attachment and gives its epoch.
  AttachEpoch attach(ImageId image, HolderId holder, AttachMode mode);
  // Gives the epoch of the first map without it; answered when acted_on() reaches that.
  MapEpoch detach(ImageId image, HolderId holder);
  // No operation that an older map let in has an effect any more.
  bool acted_on(MapEpoch epoch) const;
  // The groups that have purged are noted in the map; true when all have.
  bool purged(ImageId image) const;

  Result<OsdBooted> boot_osd(OsdBoot boot) override;
  Result<MapEpoch> report_osd(OsdReport report) override;
  const OsdReport& last_report() const { return last_report_; }
  std::uint64_t reports() const { return reports_; }

  // The rest is for people; nobody asks here.
  Result<ImageEntry> create_image(ImageName, std::uint64_t) override { return nobody(); }
  Result<std::vector<ImageEntry>> list_images(std::string) override { return nobody(); }
  Result<ImageEntry> get_image(ImageName) override { return nobody(); }
  Result<ImageEntry> resize_image(ImageName, std::uint64_t, bool) override { return nobody(); }
  Result<ImageEntry> remove_image(ImageName) override { return nobody(); }
  Result<Attached> attach_image(AttachRequest) override { return nobody(); }
  Result<MapEpoch> detach_image(DetachRequest) override { return nobody(); }
  Result<OsdCreated> create_osd(Uuid, std::string) override { return nobody(); }
  Result<void> forget_osd(OsdId, Uuid) override { return nobody(); }
  Result<ClusterStatus> status() override { return nobody(); }

 private:
  struct Follower {
    SimNode* node = nullptr;
    std::uint64_t incarnation = 0;
    FixedMap* to = nullptr;
  };
  static Unexpected nobody() { return fail(make_error(MonError::bad_request)); }
  void publish();
  void send(const Follower& follower);

  Simulator& simulator_;
  Rng rng_;
  ClusterMap map_;
  bool reachable_ = true;
  Duration delay_max_ = milliseconds(20);
  std::vector<Follower> followers_;
  std::map<OsdId, std::uint64_t> boots_;  // boot ids
  std::map<OsdId, MapEpoch> acting_on_;   // as booted and reported
  OsdReport last_report_;
  std::uint64_t reports_ = 0;
};

}  // namespace sarsen::sim
