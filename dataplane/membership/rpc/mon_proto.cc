#include "dataplane/membership/rpc/mon_proto.h"

#include "dataplane/membership/rpc/map_proto.h"

namespace sarsen {
namespace {

// In one report: more than an OSD leads groups of purged images at a time.
constexpr int kPurgedMax = 65'536;

void to_proto(const SpaceAccount& space, v1::Space& message) {
  message.set_total(space.total_blocks);
  message.set_data(space.data_blocks);
  message.set_quarantined(space.quarantined_blocks);
  message.set_free(space.free_blocks);
  message.set_metadata(space.metadata_blocks);
  message.set_unassigned(space.unassigned_blocks);
  message.set_reserved(space.reserved_blocks);
}

SpaceAccount from_proto(const v1::Space& message) {
  return {.total_blocks = message.total(),
          .data_blocks = message.data(),
          .quarantined_blocks = message.quarantined(),
          .free_blocks = message.free(),
          .metadata_blocks = message.metadata(),
          .unassigned_blocks = message.unassigned(),
          .reserved_blocks = message.reserved()};
}

void to_proto(const HealthCheck& check, v1::HealthCheck& message) {
  message.set_id(check.id);
  message.set_severity(static_cast<v1::Health>(check.severity));
  message.set_summary(check.summary);
  for (const std::string& detail : check.details) message.add_details(detail);
}

void to_proto(const OsdStatus& status, v1::OsdStatus& message) {
  sarsen::to_proto(status.osd, *message.mutable_osd());
  message.set_reported(status.reported);
  message.set_report_age_ms(static_cast<std::uint64_t>(status.report_age.value / 1'000'000));
  message.set_map_epoch(status.map_epoch.value);
  to_proto(status.space, *message.mutable_space());
  message.set_read_only(status.read_only);
  message.set_corrupt_blocks_found(status.corrupt_blocks_found);
  message.set_groups_led(status.groups_led);
}

void to_proto(const PoolStatus& status, v1::PoolStatus& message) {
  message.set_id(status.id.value);
  message.set_name(status.name);
  message.set_copies(status.copies);
  message.set_groups(status.groups);
  message.set_groups_active(status.groups_active);
  message.set_images(status.images);
  message.set_provisioned_bytes(status.provisioned_bytes);
}

Result<Health> from_proto(v1::Health health) {
  if (health < v1::HEALTH_OK || health > v1::HEALTH_ERR) {
    return fail(make_error(MonError::garbled, "a health that does not exist"));
  }
  return static_cast<Health>(health);
}

Result<HealthCheck> from_proto(const v1::HealthCheck& message) {
  const auto severity = from_proto(message.severity());
  if (!severity) return fail(severity.error());
  return HealthCheck{.id = message.id(),
                     .severity = *severity,
                     .summary = message.summary(),
                     .details = {message.details().begin(), message.details().end()}};
}

Result<OsdStatus> from_proto(const v1::OsdStatus& message) {
  auto osd = sarsen::from_proto(message.osd());
  if (!osd) return fail(std::move(osd).error());
  return OsdStatus{.osd = *std::move(osd),
                   .reported = message.reported(),
                   .report_age = milliseconds(static_cast<std::int64_t>(message.report_age_ms())),
                   .map_epoch = MapEpoch(message.map_epoch()),
                   .space = from_proto(message.space()),
                   .read_only = message.read_only(),
                   .corrupt_blocks_found = message.corrupt_blocks_found(),
                   .groups_led = message.groups_led()};
}

}  // namespace

void to_proto(const ImageName& name, v1::ImageName& message) {
  message.set_pool(name.pool);
  message.set_name(name.name);
}

void to_proto(const AttachRequest& request, v1::AttachImageRequest& message) {
  message.set_image(request.image.value);
  message.set_holder(request.holder.value);
  message.set_mode(static_cast<v1::AttachMode>(request.mode));
  message.set_continue_epoch(request.continue_epoch.value);
}

void to_proto(const DetachRequest& request, v1::DetachImageRequest& message) {
  message.set_image(request.image.value);
  message.set_holder(request.holder.value);
  message.set_epoch(request.epoch.value);
  message.set_force(request.force);
}

void to_proto(const OsdBoot& boot, v1::BootOsdRequest& message) {
  message.set_osd(boot.osd.value);
  message.set_device(bytes_of(boot.device));
  message.set_cluster(bytes_of(boot.cluster));
  message.set_start_counter(boot.start_counter);
  message.set_boot_id(boot.boot_id);
  message.set_address(boot.address);
  message.set_node(boot.node);
  message.set_features(boot.features);
}

void to_proto(const OsdReport& report, v1::ReportOsdRequest& message) {
  message.set_osd(report.osd.value);
  message.set_incarnation(report.incarnation);
  message.set_map_epoch(report.map_epoch.value);
  to_proto(report.space, *message.mutable_space());
  message.set_read_only(report.read_only);
  message.set_corrupt_blocks_found(report.corrupt_blocks_found);
  message.set_stopping(report.stopping);
  for (const PurgeDone& done : report.purged) {
    v1::PurgeDone& part = *message.add_purged();
    part.set_image(done.image.value);
    part.set_purge_generation(done.purge_generation);
    part.set_pool(done.pool.value);
    part.set_group(done.group.value);
  }
}

void to_proto(const ClusterStatus& status, v1::GetStatusResponse& message) {
  message.set_cluster(bytes_of(status.cluster));
  message.set_store_incarnation(status.store_incarnation);
  message.set_map_epoch(status.epoch.value);
  message.set_health(static_cast<v1::Health>(status.health));
  for (const HealthCheck& check : status.checks) to_proto(check, *message.add_checks());
  for (const OsdStatus& osd : status.osds) to_proto(osd, *message.add_osds());
  for (const PoolStatus& pool : status.pools) to_proto(pool, *message.add_pools());
  message.set_attachments(status.attachments);
}

ImageName from_proto(const v1::ImageName& message) {
  return {.pool = message.pool(), .name = message.name()};
}

DetachRequest from_proto(const v1::DetachImageRequest& message) {
  return {.image = ImageId(message.image()),
          .holder = HolderId(message.holder()),
          .epoch = AttachEpoch(message.epoch()),
          .force = message.force()};
}

Result<AttachRequest> from_proto(const v1::AttachImageRequest& message) {
  if (message.mode() < v1::ATTACH_MODE_SINGLE_WRITER ||
      message.mode() > v1::ATTACH_MODE_READ_ONLY) {
    return fail(make_error(MonError::bad_request, "an attach mode that does not exist"));
  }
  return AttachRequest{.image = ImageId(message.image()),
                       .holder = HolderId(message.holder()),
                       .mode = static_cast<AttachMode>(message.mode()),
                       .continue_epoch = AttachEpoch(message.continue_epoch())};
}

Result<OsdBoot> from_proto(const v1::BootOsdRequest& message) {
  const auto device = uuid_from(message.device());
  const auto cluster = cluster_from(message.cluster());
  if (!device || !cluster) return fail(device ? cluster.error() : device.error());
  return OsdBoot{.osd = OsdId(message.osd()),
                 .device = *device,
                 .cluster = *cluster,
                 .start_counter = message.start_counter(),
                 .boot_id = message.boot_id(),
                 .address = message.address(),
                 .node = message.node(),
                 .features = message.features()};
}

Result<OsdReport> from_proto(const v1::ReportOsdRequest& message) {
  if (message.purged_size() > kPurgedMax) {
    return fail(make_error(MonError::bad_request, "a report names too many purged groups"));
  }
  OsdReport report{.osd = OsdId(message.osd()),
                   .incarnation = message.incarnation(),
                   .map_epoch = MapEpoch(message.map_epoch()),
                   .space = from_proto(message.space()),
                   .read_only = message.read_only(),
                   .corrupt_blocks_found = message.corrupt_blocks_found(),
                   .stopping = message.stopping()};
  for (const v1::PurgeDone& part : message.purged()) {
    report.purged.push_back({.image = ImageId(part.image()),
                             .purge_generation = part.purge_generation(),
                             .pool = PoolId(part.pool()),
                             .group = PgNumber(part.group())});
  }
  return report;
}

Result<ClusterStatus> from_proto(const v1::GetStatusResponse& message) {
  const auto cluster = cluster_from(message.cluster());
  const auto health = from_proto(message.health());
  if (!cluster || !health) return fail(cluster ? health.error() : cluster.error());
  ClusterStatus status{.cluster = *cluster,
                       .store_incarnation = message.store_incarnation(),
                       .epoch = MapEpoch(message.map_epoch()),
                       .health = *health,
                       .attachments = message.attachments()};
  for (const v1::HealthCheck& part : message.checks()) {
    auto check = from_proto(part);
    if (!check) return fail(std::move(check).error());
    status.checks.push_back(*std::move(check));
  }
  for (const v1::OsdStatus& part : message.osds()) {
    auto osd = from_proto(part);
    if (!osd) return fail(std::move(osd).error());
    status.osds.push_back(*std::move(osd));
  }
  for (const v1::PoolStatus& part : message.pools()) {
    status.pools.push_back({.id = PoolId(part.id()),
                            .name = part.name(),
                            .copies = part.copies(),
                            .groups = part.groups(),
                            .groups_active = part.groups_active(),
                            .images = part.images(),
                            .provisioned_bytes = part.provisioned_bytes()});
  }
  return status;
}

}  // namespace sarsen
