#include "dataplane/placement/cluster_map.h"

#include <algorithm>

namespace sarsen {
namespace {

template <typename Key, typename Entry>
const Entry* find(const std::map<Key, Entry>& entries, Key key) {
  const auto found = entries.find(key);
  return found == entries.end() ? nullptr : &found->second;
}

template <typename Key, typename Entry>
void differing(const std::map<Key, Entry>& from, const std::map<Key, Entry>& to,
               std::map<Key, Entry>& changed, std::vector<Key>& removed) {
  for (const auto& [key, entry] : to)
    if (const Entry* before = find(from, key); !before || *before != entry)
      changed.emplace(key, entry);
  for (const auto& [key, entry] : from)
    if (!to.contains(key)) removed.push_back(key);
}

template <typename Key, typename Entry>
void replace(std::map<Key, Entry>& entries, const std::map<Key, Entry>& changed,
             const std::vector<Key>& removed) {
  for (const auto& [key, entry] : changed) entries.insert_or_assign(key, entry);
  for (const Key& key : removed) entries.erase(key);
}

}  // namespace

const AttachmentEntry* ImageEntry::find_attachment(HolderId holder, AttachEpoch epoch) const {
  const auto found = std::ranges::find_if(attachments, [&](const AttachmentEntry& entry) {
    return entry.holder == holder && entry.epoch == epoch;
  });
  return found == attachments.end() ? nullptr : &*found;
}

ObjectKey ImageEntry::object_key(ObjectNumber object) const {
  return {.pool = pool, .family = family, .branch = branch.value, .object_number = object.value};
}

const OsdEntry* ClusterMap::find_osd(OsdId osd) const {
  return find(osds, osd);
}

const PoolEntry* ClusterMap::find_pool(PoolId pool) const {
  return find(pools, pool);
}

const PoolEntry* ClusterMap::find_pool(std::string_view name) const {
  const auto found =
      std::ranges::find_if(pools, [&](auto& entry) { return entry.second.name == name; });
  return found == pools.end() ? nullptr : &found->second;
}

const ImageEntry* ClusterMap::find_image(ImageId image) const {
  return find(images, image);
}

const ImageEntry* ClusterMap::find_image(PoolId pool, std::string_view name) const {
  const auto found = std::ranges::find_if(
      images, [&](auto& entry) { return entry.second.pool == pool && entry.second.name == name; });
  return found == images.end() ? nullptr : &found->second;
}

PgNumber placement_group(const PoolEntry& pool, const ImageEntry& image, ObjectNumber object) {
  return PgNumber(placement_group(image.object_key(object), pool.group_bits));
}

MapUpdate difference(const ClusterMap& from, const ClusterMap& to) {
  MapUpdate update{.from = from.epoch};
  update.changed.cluster = to.cluster;
  update.changed.store_incarnation = to.store_incarnation;
  update.changed.epoch = to.epoch;
  differing(from.osds, to.osds, update.changed.osds, update.osds_removed);
  differing(from.pools, to.pools, update.changed.pools, update.pools_removed);
  differing(from.images, to.images, update.changed.images, update.images_removed);
  return update;
}

bool apply(ClusterMap& map, const MapUpdate& update) {
  const ClusterMap& changed = update.changed;
  if (update.from == MapEpoch(0)) {
    map = changed;
    return true;
  }
  const bool same_store =
      map.cluster == changed.cluster && map.store_incarnation == changed.store_incarnation;
  if (!same_store || map.epoch != update.from) return false;
  map.epoch = changed.epoch;
  replace(map.osds, changed.osds, update.osds_removed);
  replace(map.pools, changed.pools, update.pools_removed);
  replace(map.images, changed.images, update.images_removed);
  return true;
}

}  // namespace sarsen
