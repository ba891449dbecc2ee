#include "dataplane/membership/rpc/map_proto.h"

#include <algorithm>
#include <cstring>

#include "dataplane/membership/mon_error.h"
#include "dataplane/placement/map_bounds.h"

namespace sarsen {
namespace {

using Bounds = MapBounds;

Unexpected garbled(const char* thing, std::uint64_t id, const char* what) {
  return fail(
      make_error(MonError::garbled, std::string(thing) + " " + std::to_string(id) + ": " + what));
}

// Printable, so that it can be shown anywhere; UTF-8 was checked by protobuf.
bool good_text(const std::string& text, std::size_t bytes_max, bool may_be_empty) {
  if (text.empty()) return may_be_empty;
  return text.size() <= bytes_max && std::ranges::none_of(text, [](char c) {
           return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
         });
}

template <typename Array>
Result<Array> sixteen_bytes(const std::string& bytes) {
  Array array{};
  if (bytes.size() != array.size()) {
    return fail(make_error(MonError::garbled,
                           "an id of " + std::to_string(bytes.size()) + " bytes, not 16"));
  }
  std::memcpy(array.data(), bytes.data(), array.size());
  return array;
}

template <typename Key, typename Entry, typename Messages>
Result<void> entries_from(const Messages& messages, std::map<Key, Entry>& entries) {
  for (const auto& message : messages) {
    auto entry = from_proto(message);
    if (!entry) return fail(std::move(entry).error());
    const Key key = entry->id;
    if (!entries.emplace(key, *std::move(entry)).second)
      return garbled("entry", key.value, "comes twice");
  }
  return {};
}

// Removed ids, each once, and none that is also among the changed entries.
template <typename Key, typename Entry, typename Numbers>
Result<void> removed_from(const Numbers& numbers, const std::map<Key, Entry>& changed,
                          std::vector<Key>& removed) {
  for (const auto number : numbers) {
    const Key key(number);
    if (!removed.empty() && removed.back() >= key)
      return garbled("removed entry", key.value, "is out of order");
    if (changed.contains(key)) return garbled("removed entry", key.value, "is also changed");
    removed.push_back(key);
  }
  return {};
}

Result<PgConfiguration> group_from(const v1::PlacementGroup& message, std::uint32_t pool) {
  PgConfiguration group{.epoch = PgEpoch(message.epoch()), .active = message.active()};
  if (static_cast<std::size_t>(message.in_sync_size()) > Bounds::kMembersMax) {
    return garbled("pool", pool, "a placement group has too many members");
  }
  for (const std::uint32_t osd : message.in_sync()) {
    if (std::ranges::find(group.in_sync, OsdId(osd)) != group.in_sync.end()) {
      return garbled("pool", pool, "a placement group names an OSD twice");
    }
    group.in_sync.emplace_back(osd);
  }
  if (group.active && group.in_sync.empty()) {
    return garbled("pool", pool, "a placement group is active without members");
  }
  return group;
}

Result<void> check_image(const ImageEntry& image) {
  const auto wrong = [&](const char* what) { return garbled("image", image.id.value, what); };
  if (image.id == ImageId(0)) return wrong("0 is no id");
  if (!good_text(image.name, Bounds::kNameBytesMax, false)) return wrong("name");
  if (image.size_bytes % kBlockBytes != 0 || image.size_bytes > Bounds::kImageBytesMax)
    return wrong("size");
  if (image.purge_from_bytes % kBlockBytes != 0 ||
      image.purge_from_bytes > Bounds::kImageBytesMax) {
    return wrong("purge_from_bytes");
  }
  if (image.state == ImageState::removing && !image.purging)
    return wrong("is removed without purging");
  for (std::size_t i = 1; i < image.purged.size(); ++i) {
    if (image.purged[i - 1] >= image.purged[i]) return wrong("purged groups are out of order");
  }
  if (image.purged.size() > (std::size_t{1} << Bounds::kGroupBitsMax))
    return wrong("too many purged groups");
  if (image.attachments.size() > Bounds::kAttachmentsMax) return wrong("too many attachments");
  for (const AttachmentEntry& attachment : image.attachments) {
    if (attachment.epoch > image.last_attach_epoch) return wrong("an attach epoch above the last");
  }
  return {};
}

}  // namespace

Result<wire::ClusterId> cluster_from(const std::string& bytes) {
  return sixteen_bytes<wire::ClusterId>(bytes);
}
std::string bytes_of(const wire::ClusterId& cluster) {
  return {cluster.begin(), cluster.end()};
}
Result<Uuid> uuid_from(const std::string& bytes) {
  return sixteen_bytes<Uuid>(bytes);
}
std::string bytes_of(const Uuid& uuid) {
  return {reinterpret_cast<const char*>(uuid.data()), uuid.size()};
}

// ---------------------------------------------------------------------------------- to messages

void to_proto(const OsdEntry& entry, v1::Osd& message) {
  message.set_id(entry.id.value);
  message.set_device(bytes_of(entry.device));
  message.set_node(entry.node);
  message.set_address(entry.address);
  message.set_incarnation(entry.incarnation);
  message.set_start_counter(entry.start_counter);
  message.set_up(entry.up);
}

void to_proto(const PoolEntry& entry, v1::Pool& message) {
  message.set_id(entry.id.value);
  message.set_name(entry.name);
  message.set_copies(entry.copies);
  message.set_copies_min(entry.copies_min);
  message.set_group_bits(entry.group_bits);
  for (const PgConfiguration& group : entry.groups) {
    v1::PlacementGroup& part = *message.add_groups();
    part.set_epoch(group.epoch.value);
    part.set_active(group.active);
    for (const OsdId osd : group.in_sync) part.add_in_sync(osd.value);
  }
}

void to_proto(const AttachmentEntry& entry, v1::Attachment& message) {
  message.set_holder(entry.holder.value);
  message.set_epoch(entry.epoch.value);
  message.set_mode(static_cast<v1::AttachMode>(entry.mode));
}

void to_proto(const ImageEntry& entry, v1::Image& message) {
  message.set_id(entry.id.value);
  message.set_name(entry.name);
  message.set_pool(entry.pool.value);
  message.set_size_bytes(entry.size_bytes);
  message.set_state(static_cast<v1::ImageState>(entry.state));
  message.set_family(entry.family);
  message.set_placement_seed(entry.placement_seed);
  message.set_branch(entry.branch.value);
  message.set_snapshot_generation(entry.snapshot_generation.value);
  message.set_created_wall_time_ns(entry.created_wall_time_ns);
  message.set_purging(entry.purging);
  message.set_purge_from_bytes(entry.purge_from_bytes);
  message.set_purge_generation(entry.purge_generation);
  for (const PgNumber group : entry.purged) message.add_purged(group.value);
  message.set_last_attach_epoch(entry.last_attach_epoch.value);
  for (const AttachmentEntry& attachment : entry.attachments) {
    to_proto(attachment, *message.add_attachments());
  }
}

void to_proto(const MapUpdate& update, v1::MapUpdate& message) {
  message.set_from(update.from.value);
  message.set_to(update.changed.epoch.value);
  message.set_cluster(bytes_of(update.changed.cluster));
  message.set_store_incarnation(update.changed.store_incarnation);
  for (const auto& [id, entry] : update.changed.osds) to_proto(entry, *message.add_osds());
  for (const auto& [id, entry] : update.changed.pools) to_proto(entry, *message.add_pools());
  for (const auto& [id, entry] : update.changed.images) to_proto(entry, *message.add_images());
  for (const OsdId id : update.osds_removed) message.add_osds_removed(id.value);
  for (const PoolId id : update.pools_removed) message.add_pools_removed(id.value);
  for (const ImageId id : update.images_removed) message.add_images_removed(id.value);
}

// -------------------------------------------------------------------------------- from messages

Result<OsdEntry> from_proto(const v1::Osd& message) {
  const auto device = uuid_from(message.device());
  if (!device) return fail(device.error());
  if (!good_text(message.node(), Bounds::kNameBytesMax, true))
    return garbled("osd", message.id(), "node");
  if (!good_text(message.address(), Bounds::kAddressBytesMax, true)) {
    return garbled("osd", message.id(), "address");
  }
  return OsdEntry{.id = OsdId(message.id()),
                  .device = *device,
                  .node = message.node(),
                  .address = message.address(),
                  .incarnation = message.incarnation(),
                  .start_counter = message.start_counter(),
                  .up = message.up()};
}

Result<PoolEntry> from_proto(const v1::Pool& message) {
  PoolEntry pool{.id = PoolId(message.id()),
                 .name = message.name(),
                 .copies = message.copies(),
                 .copies_min = message.copies_min(),
                 .group_bits = message.group_bits()};
  if (!good_text(pool.name, Bounds::kNameBytesMax, false))
    return garbled("pool", message.id(), "name");
  if (pool.copies == 0 || pool.copies > Bounds::kMembersMax || pool.copies_min == 0 ||
      pool.copies_min > pool.copies) {
    return garbled("pool", message.id(), "number of copies");
  }
  if (pool.group_bits > Bounds::kGroupBitsMax ||
      static_cast<std::uint64_t>(message.groups_size()) != std::uint64_t{1} << pool.group_bits) {
    return garbled("pool", message.id(), "number of placement groups");
  }
  pool.groups.reserve(static_cast<std::size_t>(message.groups_size()));
  for (const v1::PlacementGroup& part : message.groups()) {
    auto group = group_from(part, message.id());
    if (!group) return fail(std::move(group).error());
    pool.groups.push_back(*std::move(group));
  }
  return pool;
}

Result<AttachmentEntry> from_proto(const v1::Attachment& message) {
  if (message.mode() < v1::ATTACH_MODE_SINGLE_WRITER ||
      message.mode() > v1::ATTACH_MODE_READ_ONLY) {
    return garbled("attachment of holder", message.holder(), "mode");
  }
  if (message.epoch() == 0) return garbled("attachment of holder", message.holder(), "epoch");
  return AttachmentEntry{.holder = HolderId(message.holder()),
                         .epoch = AttachEpoch(message.epoch()),
                         .mode = static_cast<AttachMode>(message.mode())};
}

Result<ImageEntry> from_proto(const v1::Image& message) {
  if (message.state() != v1::IMAGE_STATE_READY && message.state() != v1::IMAGE_STATE_REMOVING) {
    return garbled("image", message.id(), "state");
  }
  ImageEntry image{.id = ImageId(message.id()),
                   .name = message.name(),
                   .pool = PoolId(message.pool()),
                   .size_bytes = message.size_bytes(),
                   .state = static_cast<ImageState>(message.state()),
                   .family = message.family(),
                   .placement_seed = message.placement_seed(),
                   .branch = BranchId(message.branch()),
                   .snapshot_generation = SnapshotGeneration(message.snapshot_generation()),
                   .created_wall_time_ns = message.created_wall_time_ns(),
                   .purging = message.purging(),
                   .purge_from_bytes = message.purge_from_bytes(),
                   .purge_generation = message.purge_generation(),
                   .last_attach_epoch = AttachEpoch(message.last_attach_epoch())};
  for (const std::uint32_t group : message.purged()) image.purged.emplace_back(group);
  for (const v1::Attachment& part : message.attachments()) {
    auto attachment = from_proto(part);
    if (!attachment) return fail(std::move(attachment).error());
    image.attachments.push_back(*attachment);
  }
  SARSEN_TRY(check_image(image));
  return image;
}

Result<MapUpdate> from_proto(const v1::MapUpdate& message) {
  MapUpdate update{.from = MapEpoch(message.from())};
  const auto cluster = cluster_from(message.cluster());
  if (!cluster) return fail(cluster.error());
  update.changed.cluster = *cluster;
  update.changed.store_incarnation = message.store_incarnation();
  update.changed.epoch = MapEpoch(message.to());
  if (message.to() <= message.from()) {
    return fail(make_error(MonError::garbled, "an update that does not lead to a later epoch"));
  }
  SARSEN_TRY(entries_from(message.osds(), update.changed.osds));
  SARSEN_TRY(entries_from(message.pools(), update.changed.pools));
  SARSEN_TRY(entries_from(message.images(), update.changed.images));
  SARSEN_TRY(removed_from(message.osds_removed(), update.changed.osds, update.osds_removed));
  SARSEN_TRY(removed_from(message.pools_removed(), update.changed.pools, update.pools_removed));
  SARSEN_TRY(removed_from(message.images_removed(), update.changed.images, update.images_removed));
  const bool removes = !update.osds_removed.empty() || !update.pools_removed.empty() ||
                       !update.images_removed.empty();
  if (update.from == MapEpoch(0) && removes) {
    return fail(make_error(MonError::garbled, "a whole map that removes something"));
  }
  return update;
}

}  // namespace sarsen
