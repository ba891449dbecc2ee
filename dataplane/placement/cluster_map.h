// ClusterMap: what a cluster is, by map epoch. Made by the mon, pushed to everybody else.
//
// A value. Maps of one cluster are totally ordered by epoch; the holder of a newer one forgets the
// older. It holds what must be agreed on (membership, configurations, images, attachments), and
// never what is only measured (space used, latencies), and no secret.
//
// Invariants
//   I-MAP-1  A PG's epoch rises with every change of its configuration, and with every boot of its
//            primary: no two runs of an OSD issue the same (epoch, sequence).
//   I-MAP-2  Attach epochs of one image are never used twice (rule R6).
//   I-MAP-3  Ids of images, families and OSDs are never used twice.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "dataplane/base/units.h"
#include "dataplane/store/index/object_key.h"
#include "dataplane/store/superblock.h"
#include "dataplane/wire/message.h"

namespace sarsen {

using wire::AttachEpoch;
using wire::BranchId;
using wire::HolderId;
using wire::ObjectNumber;
using wire::OsdId;
using wire::PgNumber;
using wire::SnapshotGeneration;

// ------------------------------------------------------------------------------------------ OSDs

// One device of one node. `up`: it has booted, and nothing has said since that it is down.
struct OsdEntry {
  OsdId id{};
  Uuid device{};                    // the device's id, in its superblock
  std::string node{};               // name of the machine; a failure domain
  std::string address{};            // of its wire server, as Network takes it; empty before a boot
  std::uint64_t incarnation = 0;    // counts boots that the mon accepted
  std::uint64_t start_counter = 0;  // Superblock::start_count of the latest boot (rule R5)
  bool up = false;
  bool operator==(const OsdEntry&) const = default;
};

// ----------------------------------------------------------------------------------------- pools

// The configuration of one placement group. Without a primary it is inactive and serves nobody.
struct PgConfiguration {
  PgEpoch epoch{};
  std::vector<OsdId> in_sync{};  // members; the first is the primary when `active`
  bool active = false;
  bool operator==(const PgConfiguration&) const = default;

  bool has_primary(OsdId osd) const { return active && !in_sync.empty() && in_sync[0] == osd; }
};

struct PoolEntry {
  PoolId id{};
  std::string name{};
  std::uint32_t copies = 1;
  std::uint32_t copies_min = 1;
  std::uint32_t group_bits = 0;           // 2^group_bits placement groups
  std::vector<PgConfiguration> groups{};  // by number
  bool operator==(const PoolEntry&) const = default;
};

// ---------------------------------------------------------------------------------------- images

enum class AttachMode : std::uint8_t { single_writer = 1, multi_writer = 2, read_only = 3 };

struct AttachmentEntry {
  HolderId holder{};
  AttachEpoch epoch{};
  AttachMode mode = AttachMode::single_writer;
  bool operator==(const AttachmentEntry&) const = default;
};

enum class ImageState : std::uint8_t { ready = 1, removing = 2 };

struct ImageEntry {
  ImageId id{};
  std::string name{};  // unique in its pool
  PoolId pool{};
  std::uint64_t size_bytes = 0;  // a multiple of kBlockBytes
  ImageState state = ImageState::ready;
  // All images that descend from one by snapshot or clone; names objects and places them.
  std::uint64_t family = 0;
  std::uint64_t placement_seed = 0;  // rule S7; equal to `family`, which places objects
  BranchId branch{};                 // what sessions write to, within the family (rules S7, S8)
  SnapshotGeneration snapshot_generation{};
  std::int64_t created_wall_time_ns = 0;
  // Bytes of objects from here on are being given back, after the image was made smaller or
  // removed; groups that have done so are in `purged`. size_bytes may not grow until all have.
  bool purging = false;
  std::uint64_t purge_from_bytes = 0;
  std::uint64_t purge_generation = 0;  // counts purges; answers to an older one are ignored
  std::vector<PgNumber> purged{};
  AttachEpoch last_attach_epoch{};
  std::vector<AttachmentEntry> attachments{};
  bool operator==(const ImageEntry&) const = default;

  const AttachmentEntry* find_attachment(HolderId holder, AttachEpoch epoch) const;
  std::uint64_t object_count() const { return round_up(size_bytes, kObjectBytes) / kObjectBytes; }
  // The name of an object of this image in a store.
  ObjectKey object_key(ObjectNumber object) const;
};

// ------------------------------------------------------------------------------------------- map

struct ClusterMap {
  wire::ClusterId cluster{};
  // Of the map store: differs after it was lost and recovered or created anew (rule M1).
  std::uint64_t store_incarnation = 0;
  MapEpoch epoch{};
  std::map<OsdId, OsdEntry> osds{};
  std::map<PoolId, PoolEntry> pools{};
  std::map<ImageId, ImageEntry> images{};
  bool operator==(const ClusterMap&) const = default;

  // Nothing when there is none.
  const OsdEntry* find_osd(OsdId osd) const;
  const PoolEntry* find_pool(PoolId pool) const;
  const PoolEntry* find_pool(std::string_view name) const;
  const ImageEntry* find_image(ImageId image) const;
  const ImageEntry* find_image(PoolId pool, std::string_view name) const;
};

// Where an object lives: pure, stable for ever.
PgNumber placement_group(const PoolEntry& pool, const ImageEntry& image, ObjectNumber object);

// What changed from one map to the next. Applied to the map of `from` it gives that of `to`; a
// whole map is an update from epoch 0.
struct MapUpdate {
  MapEpoch from{};
  ClusterMap changed{};  // epoch is `to`; entries that are new or differ
  std::vector<OsdId> osds_removed{};
  std::vector<PoolId> pools_removed{};
  std::vector<ImageId> images_removed{};
  bool operator==(const MapUpdate&) const = default;
};

MapUpdate difference(const ClusterMap& from, const ClusterMap& to);
// False when the update is not for this map: ask for a whole one.
bool apply(ClusterMap& map, const MapUpdate& update);

}  // namespace sarsen
