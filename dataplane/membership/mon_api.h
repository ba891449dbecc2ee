// MonApi: what is asked of the mon, as values. The cluster map itself comes by a MapSource.
//
// Implemented by MonClient (rpc/mon_client.h) and by fakes in tests.
//
// Threads    Any. Calls block, with a deadline: on a thread of the BlockingPool, never on a shard.
// Errors     MonError. A call that ended with `unreachable` or `timed_out` may have taken effect;
//            all but create_image() and resize_image() can simply be repeated.
#pragma once

#include <string>
#include <vector>

#include "dataplane/membership/mon_error.h"
#include "dataplane/placement/cluster_map.h"
#include "dataplane/runtime/env.h"
#include "dataplane/store/store.h"

namespace sarsen {

struct ImageName {
  std::string pool{};
  std::string name{};
  bool operator==(const ImageName&) const = default;
};

// ----------------------------------------------------------------------------------- attachments

struct AttachRequest {
  ImageId image{};
  HolderId holder{};
  AttachMode mode = AttachMode::single_writer;
  // To go on with an attachment that the holder has, under its epoch; 0 asks for a new one, which
  // takes the place of the holder's older one, and fences that.
  AttachEpoch continue_epoch{};
};

struct Attached {
  ImageEntry image;
  AttachmentEntry attachment;
  MapEpoch epoch;  // the first map that has it
};

struct DetachRequest {
  ImageId image{};
  HolderId holder{};
  AttachEpoch epoch{};
  // Somebody else than the holder asks: `epoch` may be 0, for all attachments of the holder.
  bool force = false;
};

// ------------------------------------------------------------------------------------------ OSDs

struct OsdCreated {
  OsdId osd{};
  wire::ClusterId cluster{};
};

struct OsdBoot {
  OsdId osd{};
  Uuid device{};
  wire::ClusterId cluster{};
  std::uint64_t start_counter = 0;  // Superblock::start_count of this run (rule R5)
  std::uint64_t boot_id = 0;        // drawn by the process: the same boot asked twice is one boot
  Address address{};
  std::string node{};
  std::uint64_t features = 0;
};

struct OsdBooted {
  std::uint64_t incarnation = 0;
  MapEpoch epoch{};  // the first map that has it up
};

// An OSD has given back what its part of an image held beyond purge_from_bytes, durably.
struct PurgeDone {
  ImageId image{};
  std::uint64_t purge_generation = 0;  // ImageEntry::purge_generation that it has done
  PoolId pool{};
  PgNumber group{};
};

// Sent every kReportInterval; an OSD that is silent for kReportSilenceMax counts as down.
struct OsdReport {
  OsdId osd{};
  std::uint64_t incarnation = 0;
  MapEpoch map_epoch{};  // the newest map that all of its shards act on
  SpaceAccount space{};
  bool read_only = false;
  std::uint64_t corrupt_blocks_found = 0;
  std::vector<PurgeDone> purged{};  // repeated until the map shows that it is known
  bool stopping = false;            // the last report of this run
};

inline constexpr Duration kReportInterval = seconds(2);
inline constexpr Duration kReportSilenceMax = seconds(10);

// ---------------------------------------------------------------------------------------- status

enum class Health : std::uint8_t { ok = 1, warn = 2, err = 3 };

// "HEALTH_OK" and so on.
const char* name_of(Health health);

struct HealthCheck {
  std::string id{};  // OSD_DOWN, PG_INACTIVE, ...
  Health severity = Health::warn;
  std::string summary{};
  std::vector<std::string> details{};
  bool operator==(const HealthCheck&) const = default;
};

struct OsdStatus {
  OsdEntry osd;
  bool reported = false;  // since the mon started; what follows is of the latest report
  Duration report_age{0};
  MapEpoch map_epoch{};
  SpaceAccount space{};
  bool read_only = false;
  std::uint64_t corrupt_blocks_found = 0;
  std::uint32_t groups_led = 0;
};

struct PoolStatus {
  PoolId id{};
  std::string name{};
  std::uint32_t copies = 0;
  std::uint32_t groups = 0;
  std::uint32_t groups_active = 0;
  std::uint64_t images = 0;
  std::uint64_t provisioned_bytes = 0;  // sum of image sizes
};

struct ClusterStatus {
  wire::ClusterId cluster{};
  std::uint64_t store_incarnation = 0;
  MapEpoch epoch{};
  Health health = Health::ok;
  std::vector<HealthCheck> checks{};
  std::vector<OsdStatus> osds{};
  std::vector<PoolStatus> pools{};
  std::uint64_t attachments = 0;
};

// ----------------------------------------------------------------------------------------- calls

class MonApi {
 public:
  virtual ~MonApi() = default;

  // Sizes are rounded up to whole blocks. Error: not_found (pool), exists, bad_request.
  virtual Result<ImageEntry> create_image(ImageName name, std::uint64_t size_bytes) = 0;
  // Of all pools when `pool` is empty. Error: not_found (pool).
  virtual Result<std::vector<ImageEntry>> list_images(std::string pool) = 0;
  virtual Result<ImageEntry> get_image(ImageName name) = 0;
  // Error: in_use (attached and to be made smaller), busy (an earlier shrinking is not finished),
  // bad_request (smaller without allow_shrink).
  virtual Result<ImageEntry> resize_image(ImageName name, std::uint64_t size_bytes,
                                          bool allow_shrink) = 0;
  // Begins the removal; the image is gone when get_image() answers not_found or another id. Error:
  // in_use, naming the holders.
  virtual Result<ImageEntry> remove_image(ImageName name) = 0;

  // Error: in_use (another holder, or this one in another mode), gone (the attachment that was to
  // be continued), busy (being removed), not_found.
  virtual Result<Attached> attach_image(AttachRequest request) = 0;
  // Gives the epoch of the first map without it. Succeeds when it is gone already. Error:
  // not_found (no such image, or an epoch that was never given).
  virtual Result<MapEpoch> detach_image(DetachRequest request) = 0;

  // The same device gets the same id. Error: bad_request.
  virtual Result<OsdCreated> create_osd(Uuid device, std::string node) = 0;
  // Takes back create_osd() of a device that was never booted. Error: in_use, not_found.
  virtual Result<void> forget_osd(OsdId osd, Uuid device) = 0;
  // Error: boot_refused (rule R5: another device, or its start counter went backwards),
  // wrong_cluster, not_found.
  virtual Result<OsdBooted> boot_osd(OsdBoot boot) = 0;
  // Gives the mon's map epoch. Error: gone (a later boot is known: end), not_found.
  virtual Result<MapEpoch> report_osd(OsdReport report) = 0;

  virtual Result<ClusterStatus> status() = 0;
};

}  // namespace sarsen
