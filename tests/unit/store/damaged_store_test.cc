// A store whose index is damaged: reported, limited to its keys, and never the end of the store.
#include <functional>
#include <string_view>

#include "dataplane/store/index/index_leaf_codec.h"
#include "dataplane/store/store_contents.h"
#include "tests/unit/store/open_store_fixture.h"

namespace sarsen {
namespace {

constexpr std::uint64_t kCorruptId = ~std::uint64_t{0};

class DamagedStore : public StoreTest {
 protected:
  // Stops the store, changes one leaf of its index behind its back, and opens it again.
  void change_leaf(const ObjectKey& key, const std::function<void(IndexLeaf&)>& change) {
    stop();
    auto contents = run(read_store_contents(node.env(), node.disk(), node.blocking_disk()));
    ASSERT_TRUE(contents);
    const LeafKeyBytes bytes = encode_leaf_key({.object = key, .leaf = 0});
    const std::string_view name(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const auto value = contents->db->get(MetadataFamily::index, name);
    ASSERT_TRUE(value && *value);
    auto leaf = decode_leaf(std::as_bytes(std::span(**value)), bytes);
    ASSERT_TRUE(leaf);
    change(*leaf);
    LeafValueBuffer buffer;
    const auto encoded = encode_leaf(*leaf, bytes, buffer);
    MetadataBatch batch;
    batch.put(MetadataFamily::index, name,
              {reinterpret_cast<const char*>(encoded.data()), encoded.size()});
    ASSERT_TRUE(contents->db->write(batch));
    ASSERT_TRUE(contents->db->flush());
    contents->db->close();
    contents = fail(make_error(StoreError::stopping));
    open();
  }
  // The block of a table file that holds the leaf.
  void rot_leaf(const ObjectKey& key) {
    stop();
    const LeafKeyBytes bytes = encode_leaf_key({.object = key, .leaf = 0});
    const std::string_view name(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const StoreGeometry geometry = read_geometry();
    std::vector<std::byte> block(kBlockBytes);
    for (std::uint64_t place = geometry.chunks_start().value; place < disk.info().size_bytes;
         place += kBlockBytes) {
      disk.current().read(place, block);
      const std::string_view text(reinterpret_cast<const char*>(block.data()), block.size());
      // A table file begins with its first key; a MANIFEST names it further on.
      if (text.find(name) < 32) disk.rot(ByteOffset(place), kBlockBytes);
    }
    open();
  }
  StoreGeometry read_geometry() {
    return run(read_superblock(node.env(), node.disk()))->superblock.geometry;
  }
};

// A leaf that names blocks which are not its own is damage: an alarm and corrupt blocks. Writing
// or freeing there would take another object's data, aborting would take all of them.
TEST_F(DamagedStore, a_leaf_that_names_blocks_of_nobody_becomes_corrupt_and_the_store_goes_on) {
  ASSERT_TRUE(write(1, 0, 4, 1));
  ASSERT_TRUE(write(2, 0, 4, 2));
  checkpoint();
  const auto free_block = [this] {
    const StoreGeometry& geometry = store->superblock().geometry;
    return BlockIndex(geometry.device_bytes / kBlockBytes / 2);
  }();
  change_leaf(object(1), [&](IndexLeaf& leaf) {
    Extent wrong = leaf.extents().front();
    wrong.device_block = free_block;
    (void)leaf.put(std::move(wrong));
  });
  ASSERT_TRUE(write(1, 1, 1, 3));
  checkpoint();
  EXPECT_GT(store->stats().index_damage_found, 0u);
  EXPECT_EQ(read(1, 0, 4), (Ids{kCorruptId, 3, kCorruptId, kCorruptId}));
  EXPECT_EQ(read(2, 0, 4), (Ids{2, 2, 2, 2}));
  ASSERT_TRUE(write(1, 0, 4, 4));
  checkpoint();
  EXPECT_EQ(read(1, 0, 4), (Ids{4, 4, 4, 4}));
  ASSERT_TRUE(run(store->remove(object(1), {})));
  checkpoint();
  power_cycle();
  EXPECT_EQ(read(1, 0, 4), (Ids{0, 0, 0, 0}));
}

// S6: a bad block of the index costs the keys in it, never the store.
TEST_F(DamagedStore, keys_of_a_bad_index_block_are_corrupt_and_can_be_written_again) {
  ASSERT_TRUE(write(1, 0, 4, 1));
  checkpoint();
  rot_leaf(object(1));
  power_cycle();
  const auto scrubbed = run(store->scrub());
  ASSERT_TRUE(scrubbed) << scrubbed.error().message();
  EXPECT_FALSE(scrubbed->metadata_damage.empty());
  ASSERT_TRUE(write(1, 1, 1, 2));
  checkpoint();
  EXPECT_EQ(read(1, 0, 3), (Ids{kCorruptId, 2, kCorruptId}));
  EXPECT_FALSE(store->stats().read_only);
  ASSERT_TRUE(run(store->remove(object(1), {})));
  checkpoint();
  EXPECT_EQ(read(1, 0, 3), (Ids{0, 0, 0}));
}

}  // namespace
}  // namespace sarsen
