#include "dataplane/membership/rpc/map_codec.h"

#include <functional>

#include <gtest/gtest.h>

#include "dataplane/membership/mon_error.h"
#include "dataplane/placement/map_bounds.h"

namespace sarsen {
namespace {

ClusterMap make_map() {
  ClusterMap map;
  map.cluster[3] = 7;
  map.store_incarnation = 3;
  map.epoch = MapEpoch(5);
  map.osds[OsdId(0)] = {.id = OsdId(0),
                        .node = "a",
                        .address = "unix:/a",
                        .incarnation = 2,
                        .start_counter = 9,
                        .up = true};
  PoolEntry pool{.id = PoolId(1), .name = "rbd", .group_bits = 1};
  pool.groups = {{.epoch = PgEpoch(2), .in_sync = {OsdId(0)}, .active = true},
                 {.epoch = PgEpoch(1)}};
  map.pools[PoolId(1)] = pool;
  ImageEntry image{.id = ImageId(9),
                   .name = "disk",
                   .pool = PoolId(1),
                   .size_bytes = kGiB,
                   .family = 9,
                   .placement_seed = 9,
                   .branch = BranchId(1),
                   .snapshot_generation = SnapshotGeneration(1),
                   .created_wall_time_ns = -5};
  image.purging = true;
  image.purge_from_bytes = 4096;
  image.purge_generation = 2;
  image.purged = {PgNumber(0), PgNumber(1)};
  image.last_attach_epoch = AttachEpoch(4);
  image.attachments = {{HolderId(77), AttachEpoch(4), AttachMode::read_only}};
  map.images[ImageId(9)] = image;
  return map;
}

MapUpdate whole() {
  return difference(ClusterMap(), make_map());
}

// Everybody but the mon knows the map only through these bytes.
TEST(MapCodec, gives_back_every_field_of_a_whole_map_and_of_an_update) {
  EXPECT_EQ(decode_update(encode_update(whole())).value(), whole());
  MapUpdate update = whole();
  update.from = MapEpoch(4);
  update.osds_removed = {OsdId(3), OsdId(4)};
  update.images_removed = {ImageId(1)};
  EXPECT_EQ(decode_update(encode_update(update)).value(), update);
}

struct Nonsense {
  const char* name;
  std::function<void(MapUpdate&)> make;
};

class MapCodecRefuses : public testing::TestWithParam<Nonsense> {};

// A mon of another version, or a fault in it, must not put a map into effect that asserts forbid.
TEST_P(MapCodecRefuses, nonsense) {
  MapUpdate update = whole();
  update.from = MapEpoch(1);
  ASSERT_TRUE(decode_update(encode_update(update)).has_value());
  GetParam().make(update);
  const auto decoded = decode_update(encode_update(update));
  ASSERT_FALSE(decoded.has_value());
  EXPECT_TRUE(is(decoded.error(), MonError::garbled)) << decoded.error().message();
}

PoolEntry& pool(MapUpdate& update) {
  return update.changed.pools.begin()->second;
}
ImageEntry& image(MapUpdate& update) {
  return update.changed.images.begin()->second;
}
OsdEntry& osd(MapUpdate& update) {
  return update.changed.osds.begin()->second;
}

INSTANTIATE_TEST_SUITE_P(
    Fields, MapCodecRefuses,
    testing::Values(
        Nonsense{"an_update_to_an_earlier_epoch", [](auto& u) { u.changed.epoch = MapEpoch(1); }},
        Nonsense{"removed_and_changed", [](auto& u) { u.images_removed = {ImageId(9)}; }},
        Nonsense{"removed_twice", [](auto& u) { u.osds_removed = {OsdId(4), OsdId(4)}; }},
        Nonsense{"missing_groups", [](auto& u) { pool(u).groups.pop_back(); }},
        Nonsense{"too_many_groups", [](auto& u) { pool(u).group_bits = 40; }},
        Nonsense{"no_copies", [](auto& u) { pool(u).copies = 0; }},
        Nonsense{"active_without_members", [](auto& u) { pool(u).groups[1].active = true; }},
        Nonsense{"a_member_twice",
                 [](auto& u) { pool(u).groups[0].in_sync = {OsdId(0), OsdId(0)}; }},
        Nonsense{"an_image_without_a_name", [](auto& u) { image(u).name.clear(); }},
        Nonsense{"a_name_with_a_line_end", [](auto& u) { image(u).name = "a\nb"; }},
        Nonsense{"half_a_block", [](auto& u) { image(u).size_bytes = 100; }},
        Nonsense{"too_large", [](auto& u) { image(u).size_bytes = ~std::uint64_t{4095}; }},
        Nonsense{"an_unknown_state", [](auto& u) { image(u).state = ImageState(7); }},
        Nonsense{"an_unknown_mode", [](auto& u) { image(u).attachments[0].mode = AttachMode(9); }},
        Nonsense{"an_epoch_above_the_last",
                 [](auto& u) { image(u).attachments[0].epoch = AttachEpoch(5); }},
        Nonsense{"purged_out_of_order",
                 [](auto& u) { image(u).purged = {PgNumber(1), PgNumber(0)}; }},
        Nonsense{"removing_without_purging",
                 [](auto& u) {
                   image(u).state = ImageState::removing;
                   image(u).purging = false;
                 }},
        Nonsense{"a_long_address", [](auto& u) { osd(u).address = std::string(256, 'x'); }}),
    [](const auto& info) { return info.param.name; });

TEST(MapCodec, bytes_that_are_no_message_are_refused) {
  EXPECT_FALSE(decode_update("\xff\xff\xff").has_value());
  EXPECT_FALSE(decode_update("").has_value()) << "an update that leads nowhere";
  const std::string bytes = encode_update(whole());
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    // Cut anywhere: refused, or a value that encodes to itself.
    if (const auto cut = decode_update(bytes.substr(0, length))) {
      EXPECT_EQ(decode_update(encode_update(*cut)).value(), *cut);
    }
  }
}

}  // namespace
}  // namespace sarsen
