#include "dataplane/placement/cluster_map.h"

#include <gtest/gtest.h>

namespace sarsen {
namespace {

ClusterMap make_map() {
  ClusterMap map;
  map.cluster[0] = 7;
  map.store_incarnation = 3;
  map.epoch = MapEpoch(5);
  map.osds[OsdId(0)] = {.id = OsdId(0), .node = "a", .address = "unix:/a", .up = true};
  map.osds[OsdId(1)] = {.id = OsdId(1), .node = "b"};
  map.pools[PoolId(1)] = {.id = PoolId(1), .name = "rbd", .group_bits = 3};
  map.images[ImageId(9)] = {
      .id = ImageId(9), .name = "disk", .pool = PoolId(1), .size_bytes = kGiB, .family = 9};
  return map;
}

// Everybody but the mon sees the map only as a chain of updates: what they end with must be it.
TEST(ClusterMap, an_update_gives_the_map_that_it_was_made_from) {
  const ClusterMap before = make_map();
  ClusterMap after = before;
  after.epoch = MapEpoch(6);
  after.osds.erase(OsdId(1));
  after.osds[OsdId(0)].up = false;
  after.images.erase(ImageId(9));
  after.images[ImageId(10)] = {.id = ImageId(10), .name = "new", .pool = PoolId(1)};
  const MapUpdate update = difference(before, after);
  EXPECT_TRUE(update.changed.pools.empty()) << "what did not change does not travel";

  ClusterMap follower = before;
  ASSERT_TRUE(apply(follower, update));
  EXPECT_EQ(follower, after);
}

// A gap, or a map store that was lost and made anew, must not be papered over.
TEST(ClusterMap, an_update_of_another_map_is_refused) {
  const ClusterMap before = make_map();
  ClusterMap after = before;
  after.epoch = MapEpoch(6);
  const MapUpdate update = difference(before, after);

  ClusterMap older = before;
  older.epoch = MapEpoch(4);
  EXPECT_FALSE(apply(older, update));
  EXPECT_EQ(older.epoch, MapEpoch(4));

  ClusterMap other_store = before;
  other_store.store_incarnation = 4;
  EXPECT_FALSE(apply(other_store, update));
}

TEST(ClusterMap, a_whole_map_replaces_whatever_was_there) {
  ClusterMap follower = make_map();
  ClusterMap other;
  other.store_incarnation = 8;
  other.epoch = MapEpoch(1);
  ASSERT_TRUE(apply(follower, difference(ClusterMap{}, other)));
  EXPECT_EQ(follower, other);
}

// Sessions and OSDs must agree on it for as long as an image exists.
TEST(ClusterMap, objects_are_spread_over_all_groups_and_stay_there) {
  const ClusterMap map = make_map();
  const PoolEntry& pool = *map.find_pool("rbd");
  const ImageEntry& image = *map.find_image(pool.id, "disk");
  std::vector<int> objects(8);
  for (std::uint64_t object = 0; object < image.object_count(); ++object)
    ++objects.at(placement_group(pool, image, ObjectNumber(object)).value);
  for (const int count : objects) EXPECT_GT(count, 0);
  EXPECT_EQ(placement_group(pool, image, ObjectNumber(0)),
            placement_group(pool, image, ObjectNumber(0)));
  EXPECT_EQ(image.object_count(), 256U);
}

TEST(ClusterMap, an_attachment_is_found_by_holder_and_epoch_together) {
  ImageEntry image;
  image.attachments = {{.holder = HolderId(1), .epoch = AttachEpoch(4)}};
  EXPECT_NE(image.find_attachment(HolderId(1), AttachEpoch(4)), nullptr);
  EXPECT_EQ(image.find_attachment(HolderId(1), AttachEpoch(3)), nullptr);
  EXPECT_EQ(image.find_attachment(HolderId(2), AttachEpoch(4)), nullptr);
}

}  // namespace
}  // namespace sarsen
