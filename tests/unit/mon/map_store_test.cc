#include <filesystem>
#include <fstream>

#include <unistd.h>

#include "dataplane/mon/store/rocksdb_map_store.h"
#include "tests/unit/mon/mon_support.h"

namespace sarsen {
namespace {

namespace fs = std::filesystem;

class MapStoreTest : public testing::Test {
 protected:
  MapStoreTest() {
    std::string name = (fs::temp_directory_path() / "map_store_test.XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name + "/mon";
  }
  ~MapStoreTest() override { fs::remove_all(fs::path(folder_).parent_path()); }

  // A cluster with an image and a holder, each command committed.
  MonState fill() {
    EXPECT_TRUE(RocksdbMapStore::create(folder_, cluster_.state()).has_value());
    const auto store = RocksdbMapStore::open(folder_).value();
    commit(*store, CreateOsd{device_id(1), "node-1"});
    commit(*store, cluster_.boot_of(1, 1));
    commit(*store, CreateImage{kDisk, kGiB});
    commit(*store, CreateImage{{"rbd", "other"}, kGiB});
    commit(*store, AttachRequest{.image = cluster_.image()->id, .holder = kNodeA});
    return cluster_.state();
  }
  void commit(MapStore& store, const MonCommand& command) {
    const MonState before = cluster_.state();
    cluster_.run(command);
    ASSERT_TRUE(store.commit(before, cluster_.state()).has_value());
  }
  Error open_error() {
    auto store = RocksdbMapStore::open(folder_);
    if (!store) return store.error();
    auto state = (*store)->load();
    EXPECT_FALSE(state.has_value()) << "damage was not noticed";
    return state ? make_error(MonError::garbled) : state.error();
  }
  fs::path newest(const std::string& suffix) {
    fs::path found;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (entry.path().string().ends_with(suffix) && entry.path() > found) found = entry.path();
    }
    return found;
  }

  std::string folder_;
  TestCluster cluster_;
};

TEST_F(MapStoreTest, gives_back_what_was_committed) {
  const MonState filled = fill();
  EXPECT_EQ(RocksdbMapStore::open(folder_).value()->load().value(), filled);
}

// What was removed must not come back after a restart, and numbers go on from where they were.
TEST_F(MapStoreTest, forgets_what_was_removed_and_keeps_its_numbers) {
  fill();
  {
    const auto store = RocksdbMapStore::open(folder_).value();
    const ImageName other{"rbd", "other"};
    commit(*store, RemoveImage{other});
    for (std::uint32_t group = 0; group < 4; ++group) {
      NotePurged done = cluster_.purged(group, 1);
      done.done[0].image = ImageId(2);
      commit(*store, done);
    }
    ASSERT_EQ(cluster_.image(other), nullptr);
  }
  const MonState loaded = RocksdbMapStore::open(folder_).value()->load().value();
  EXPECT_EQ(loaded, cluster_.state());
  EXPECT_EQ(loaded.image_next, 3u) << "I-MAP-3";
}

// Rule M1: a mon whose store is gone must not start with an empty map.
TEST_F(MapStoreTest, an_empty_map_comes_only_from_create) {
  EXPECT_TRUE(is(RocksdbMapStore::open(folder_).error(), MapStoreError::absent));
  fs::create_directories(folder_);
  EXPECT_TRUE(is(RocksdbMapStore::open(folder_).error(), MapStoreError::absent));
  std::ofstream(folder_ + "/notes.txt") << "mine";
  EXPECT_TRUE(
      is(RocksdbMapStore::create(folder_, cluster_.state()).error(), MapStoreError::exists));
}

TEST_F(MapStoreTest, create_never_overwrites_a_store) {
  const MonState filled = fill();
  EXPECT_TRUE(is(RocksdbMapStore::create(folder_, new_cluster()).error(), MapStoreError::exists));
  EXPECT_EQ(RocksdbMapStore::open(folder_).value()->load().value(), filled);
}

// Two mons on one store would acknowledge what the other overwrites.
TEST_F(MapStoreTest, a_second_user_is_kept_out) {
  fill();
  const auto first = RocksdbMapStore::open(folder_).value();
  EXPECT_TRUE(is(RocksdbMapStore::open(folder_).error(), MapStoreError::in_use));
}

// A map that lost its middle would give attach epochs and ids a second time.
TEST_F(MapStoreTest, a_bad_record_in_the_middle_of_the_log_is_damage) {
  fill();
  const fs::path log = newest(".log");
  ASSERT_GT(fs::file_size(log), 200u);
  std::fstream file(log, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(100);
  file.put('\x55').put('\x55');
  file.close();
  EXPECT_TRUE(is(open_error(), MapStoreError::corrupt));
}

// A crash in the middle of a write leaves a torn last record, which was never acknowledged.
TEST_F(MapStoreTest, a_torn_last_record_is_no_damage) {
  const MonState filled = fill();
  const MonState before = cluster_.state();
  const std::uint64_t acknowledged = fs::file_size(newest(".log"));
  {
    const auto store = RocksdbMapStore::open(folder_).value();
    commit(*store, CreateImage{{"rbd", "torn"}, kGiB});
  }
  const fs::path log = newest(".log");
  fs::resize_file(log, fs::file_size(log) - 5);
  EXPECT_EQ(RocksdbMapStore::open(folder_).value()->load().value(), before);
  EXPECT_GT(acknowledged, 0u);
  EXPECT_EQ(before, filled);
}

TEST_F(MapStoreTest, missing_files_are_damage_and_nothing_is_made_anew) {
  fill();
  fs::remove(folder_ + "/CURRENT");
  EXPECT_TRUE(is(open_error(), MapStoreError::corrupt));
  EXPECT_FALSE(fs::exists(folder_ + "/CURRENT"));
}

TEST_F(MapStoreTest, a_table_that_vanished_is_damage) {
  fill();
  ASSERT_TRUE(RocksdbMapStore::open(folder_).has_value()) << "moves the log into a table";
  ASSERT_TRUE(fs::remove(newest(".sst")));
  EXPECT_TRUE(is(open_error(), MapStoreError::corrupt));
}

TEST_F(MapStoreTest, a_bad_block_of_a_table_is_damage) {
  fill();
  ASSERT_TRUE(RocksdbMapStore::open(folder_).has_value()) << "moves the log into a table";
  std::fstream file(newest(".sst"), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(20);
  file.put('\x55').put('\x55');
  file.close();
  EXPECT_TRUE(is(open_error(), MapStoreError::corrupt));
}

}  // namespace
}  // namespace sarsen
