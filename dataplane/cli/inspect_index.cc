#include <map>
#include <set>

#include <fmt/format.h>

#include "dataplane/base/codec.h"
#include "dataplane/cli/inspect_report.h"
#include "dataplane/store/index/chunk_bitmap.h"
#include "dataplane/store/index/index_leaf_codec.h"

namespace sarsen {
namespace {

constexpr std::size_t kObjectsListed = 200;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string readable(std::string_view value) {
  if (value.size() == sizeof(std::uint64_t)) {
    return std::to_string(load_little_endian<std::uint64_t>(bytes_of(value).data()));
  }
  return fmt::format("{} bytes", value.size());
}

void note_status(Inspection& inspection, const MetadataCursor& cursor, Json& report) {
  if (const auto status = cursor.status(); !status) {
    inspection.sound = false;
    report["damage"] = status.error().message();
  }
}

struct ObjectCount {
  ObjectKey object;
  std::uint64_t leaves = 0;
  std::uint64_t blocks = 0;
  std::uint64_t corrupt_blocks = 0;
};

std::string flags_of(const Extent& extent) {
  std::string flags;
  if (extent.shared) flags += "shared ";
  if (extent.corrupt) flags += "corrupt ";
  if (extent.compression() != nullptr) flags += "compressed ";
  return flags;
}

void list_extents(const LeafKey& key, const IndexLeaf& leaf, Json& extents) {
  for (const Extent& extent : leaf.extents()) {
    extents.push_back({{"first_block", key.leaf * kLeafBlocks + extent.first_block},
                       {"blocks", extent.block_count},
                       {"device_block", extent.device_block.value},
                       {"device_byte", extent.device_block.value * kBlockBytes},
                       {"lane_sequence", extent.lane_sequence.value},
                       {"crc32c_of_first", extent.checksums.empty()
                                               ? std::string("-")
                                               : fmt::format("{:08x}", extent.checksums.front())},
                       {"flags", flags_of(extent)}});
  }
}

}  // namespace

Json inspect_table(Inspection& inspection) {
  const TableStats& stats = inspection.contents.table_stats_found;
  const TableState& state = inspection.contents.table_found;
  std::map<std::uint32_t, std::uint64_t> lanes;
  for (const ChunkOwner& owner : state.owners) {
    if (owner.is_lane()) ++lanes[owner.lane_id().value];
  }
  Json owners = Json::array({{{"owner", "nobody"}, {"chunks", stats.chunks_free}},
                             {{"owner", "metadata"}, {"chunks", stats.chunks_metadata}}});
  for (const auto& [lane, chunks] : lanes) {
    owners.push_back({{"owner", fmt::format("lane {}", lane)}, {"chunks", chunks}});
  }
  Json files = Json::array();
  for (const auto& [name, file] : state.files) {
    files.push_back({{"file", name},
                     {"bytes", file.length_bytes},
                     {"blocks", file.block_count},
                     {"copies", file.mirrored ? 2 : 1},
                     {"serial", file.serial}});
  }
  Json report{{"generation", stats.generation},
              {"records_good_in_one_mirror", stats.repairs},
              {"chunk_bytes", state.chunk_bytes},
              {"chunks", state.owners.size()},
              {"owners", owners},
              {"files", files}};
  if (stats.repairs > 0) inspection.sound = false;
  if (auto valid = state.check(); !valid) {
    inspection.sound = false;
    report["damage"] = valid.error().message();
  }
  return report;
}

Json inspect_index(Inspection& inspection) {
  const MetadataDb& db = *inspection.contents.db;
  Json report;
  Json meta = Json::array();
  auto keys = db.cursor(MetadataFamily::meta, {}, {});
  for (; keys.valid(); keys.next()) {
    std::string name(keys.key());
    for (char& c : name) {
      if (c < 0x20 || c > 0x7e) c = '?';
    }
    meta.push_back({{"key", name}, {"value", readable(keys.value())}});
  }
  note_status(inspection, keys, report);

  std::vector<ObjectCount> objects;
  std::uint64_t object_count = 0;
  std::uint64_t leaves = 0;
  std::uint64_t undecodable = 0;
  ObjectCount now;
  auto cursor = db.cursor(MetadataFamily::index, {}, {});
  for (; cursor.valid(); cursor.next(), ++leaves) {
    const auto key = decode_leaf_key(bytes_of(cursor.key()));
    const auto leaf = decode_leaf(bytes_of(cursor.value()), bytes_of(cursor.key()));
    if (!key || !leaf) {
      ++undecodable;
      continue;
    }
    if (object_count == 0 || now.object != key->object) {
      if (object_count > 0 && objects.size() < kObjectsListed) objects.push_back(now);
      ++object_count;
      now = {.object = key->object};
    }
    ++now.leaves;
    now.blocks += leaf->mapped_blocks();
    for (const Extent& extent : leaf->extents()) {
      if (extent.corrupt) now.corrupt_blocks += extent.block_count;
    }
  }
  if (object_count > 0 && objects.size() < kObjectsListed) objects.push_back(now);
  note_status(inspection, cursor, report);
  if (undecodable > 0) inspection.sound = false;

  const MetadataDbStats stats = db.stats();
  report["table_bytes"] = stats.table_bytes;
  report["leaves"] = leaves;
  report["leaves_undecodable"] = undecodable;
  report["objects"] = object_count;
  report["meta_keys"] = meta;
  Json list = Json::array();
  for (const ObjectCount& object : objects) {
    list.push_back({{"object", object_name(object.object)},
                    {"leaves", object.leaves},
                    {"blocks", object.blocks},
                    {"blocks_marked_corrupt", object.corrupt_blocks}});
  }
  if (object_count > list.size()) report["objects_listed"] = list.size();
  report["object_list"] = list;
  return report;
}

Json inspect_allocator(Inspection& inspection) {
  const MetadataDb& db = *inspection.contents.db;
  const std::uint32_t blocks_per_chunk =
      inspection.contents.reading.superblock.geometry.blocks_per_chunk();
  struct LaneCount {
    std::uint64_t chunks = 0;
    std::uint64_t used = 0;
  };
  std::map<std::uint32_t, LaneCount> lanes;
  std::uint64_t undecodable = 0;
  Json report;
  auto cursor = db.cursor(MetadataFamily::allocator, {}, {});
  for (; cursor.valid(); cursor.next()) {
    const auto key = decode_chunk_key(bytes_of(cursor.key()));
    const auto bitmap =
        decode_chunk_bitmap(bytes_of(cursor.value()), bytes_of(cursor.key()), blocks_per_chunk);
    if (!key || !bitmap) {
      ++undecodable;
      continue;
    }
    ++lanes[key->lane.value].chunks;
    lanes[key->lane.value].used += bitmap->count();
  }
  note_status(inspection, cursor, report);
  if (undecodable > 0) inspection.sound = false;
  report["bitmaps_undecodable"] = undecodable;
  Json list = Json::array();
  for (const auto& [lane, count] : lanes) {
    list.push_back({{"lane", lane},
                    {"chunks_with_a_bitmap", count.chunks},
                    {"blocks", count.chunks * blocks_per_chunk},
                    {"blocks_used", count.used}});
  }
  report["lanes"] = list;
  return report;
}

Json inspect_object(Inspection& inspection) {
  const KeyRange range = object_key_range(*inspection.object);
  Json report{{"object", object_name(*inspection.object)}};
  Json extents = Json::array();
  Json bad = Json::array();
  std::uint64_t leaves = 0;
  auto cursor = inspection.contents.db->cursor(MetadataFamily::index, range.begin, range.end);
  for (; cursor.valid(); cursor.next(), ++leaves) {
    const auto key = decode_leaf_key(bytes_of(cursor.key()));
    const auto leaf = decode_leaf(bytes_of(cursor.value()), bytes_of(cursor.key()));
    if (key && leaf) {
      list_extents(*key, *leaf, extents);
      continue;
    }
    inspection.sound = false;
    bad.push_back((key ? leaf.error() : key.error()).message());
  }
  note_status(inspection, cursor, report);
  report["leaves"] = leaves;
  if (!bad.empty()) report["undecodable_leaves"] = bad;
  report["extents"] = extents;
  return report;
}

}  // namespace sarsen
