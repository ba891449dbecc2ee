#include <atomic>
#include <mutex>
#include <thread>

#include "dataplane/mon/mon.h"
#include "tests/unit/mon/memory_map_store.h"

namespace sarsen {
namespace {

class MonTest : public testing::Test {
 protected:
  Mon::State must(const MonCommand& command) { return mon_->run(command).value(); }
  OsdBoot boot(std::uint64_t start_counter) {
    return {.osd = OsdId(0),
            .device = device_id(1),
            .cluster = store_.state.map.cluster,
            .start_counter = start_counter,
            .boot_id = start_counter,
            .address = "unix:/a",
            .node = "a"};
  }
  bool up() { return mon_->state()->map.osds.at(OsdId(0)).up; }

  MemoryMapStore store_;
  std::unique_ptr<Mon> mon_ = Mon::start(store_, [] { return kWallTimeNs; }, {}).value();
};

// After a failed write nobody knows what the store holds: deciding on would fork the map.
TEST_F(MonTest, decides_nothing_more_after_the_store_failed) {
  must(CreateImage{kDisk, 4096});
  store_.broken = true;
  EXPECT_TRUE(is(mon_->run(CreateImage{{"rbd", "b"}, 4096}).error(), MonError::store_failed));
  EXPECT_TRUE(mon_->failed());
  store_.broken = false;
  EXPECT_TRUE(is(mon_->run(CreateImage{{"rbd", "c"}, 4096}).error(), MonError::store_failed));
  EXPECT_EQ(mon_->state()->map.images.size(), 1u);
}

// A repeated command writes nothing: no epoch for nothing.
TEST_F(MonTest, a_command_that_changes_nothing_is_not_written) {
  must(CreateOsd{device_id(1), "a"});
  const MapEpoch epoch = mon_->state()->map.epoch;
  must(CreateOsd{device_id(1), "a"});
  EXPECT_EQ(mon_->state()->map.epoch, epoch);
}

// A follower that applies what it gets, step by step, has the mon's map.
TEST_F(MonTest, a_follower_is_led_from_wherever_it_is) {
  ClusterMap first = mon_->state()->map;
  ClusterMap none;
  must(CreateImage{kDisk, 4096});
  must(CreateOsd{device_id(1), "a"});
  must(RemoveImage{kDisk});
  for (ClusterMap map : {first, none}) {
    int steps = 0;
    while (const auto update =
               mon_->update_after({map.cluster, map.store_incarnation, map.epoch})) {
      ASSERT_TRUE(apply(map, *update));
      ASSERT_LT(++steps, 10);
    }
    EXPECT_EQ(map, mon_->state()->map);
  }
}

// A map of another store, or from the future of one that was restored, is replaced as a whole.
TEST_F(MonTest, a_follower_of_another_store_or_a_later_epoch_gets_a_whole_map) {
  const ClusterMap& map = mon_->state()->map;
  EXPECT_EQ(mon_->update_after({map.cluster, 12345, map.epoch})->from, MapEpoch(0));
  EXPECT_EQ(mon_->update_after({map.cluster, map.store_incarnation, MapEpoch(900)})->from,
            MapEpoch(0));
  EXPECT_FALSE(mon_->update_after({map.cluster, map.store_incarnation, map.epoch}));
}

TEST_F(MonTest, a_follower_behind_what_is_kept_gets_a_whole_map) {
  const MapEpoch first = mon_->state()->map.epoch;
  must(CreateOsd{device_id(1), "a"});
  for (std::uint64_t i = 1; i <= Mon::kUpdatesKept; ++i) must(boot(i));
  const ClusterMap& map = mon_->state()->map;
  EXPECT_EQ(mon_->update_after({map.cluster, map.store_incarnation, first})->from, MapEpoch(0));
  EXPECT_EQ(mon_->update_after({map.cluster, map.store_incarnation, first.next()})->from,
            first.next());
}

// An OSD that is silent shows in the status, and is back with its next report.
TEST_F(MonTest, a_silent_osd_counts_as_down_until_it_is_heard_again) {
  must(CreateOsd{device_id(1), "a"});
  must(boot(1));
  mon_->tick(seconds(9));
  EXPECT_TRUE(up());
  ASSERT_TRUE(mon_->report({.osd = OsdId(0), .incarnation = 1}).has_value());
  mon_->tick(seconds(9));
  EXPECT_TRUE(up()) << "heard in between";
  mon_->tick(seconds(2));
  EXPECT_FALSE(up());
  EXPECT_EQ(mon_->status().health, Health::err);
  ASSERT_TRUE(mon_->report({.osd = OsdId(0), .incarnation = 1}).has_value());
  EXPECT_TRUE(up());
}

// A process that lost its place must learn of it, whatever it reports.
TEST_F(MonTest, a_report_of_an_earlier_boot_is_refused) {
  must(CreateOsd{device_id(1), "a"});
  must(boot(1));
  must(boot(2));
  EXPECT_TRUE(is(mon_->report({.osd = OsdId(0), .incarnation = 1}).error(), MonError::gone));
  EXPECT_TRUE(is(mon_->report({.osd = OsdId(5), .incarnation = 1}).error(), MonError::not_found));
  EXPECT_FALSE(mon_->status().osds.at(0).reported);
}

TEST_F(MonTest, an_osd_that_says_that_it_stops_is_down_at_once) {
  must(CreateOsd{device_id(1), "a"});
  must(boot(1));
  ASSERT_TRUE(mon_->report({.osd = OsdId(0), .incarnation = 1, .stopping = true}).has_value());
  EXPECT_FALSE(up());
}

// Purging ends through reports alone.
TEST_F(MonTest, a_removed_image_goes_when_its_osd_has_reported_every_group) {
  must(CreateOsd{device_id(1), "a"});
  must(boot(1));
  must(CreateImage{kDisk, 4096});
  must(RemoveImage{kDisk});
  OsdReport report{.osd = OsdId(0), .incarnation = 1};
  for (std::uint32_t group = 0; group < 4; ++group) {
    report.purged.push_back(
        {.image = ImageId(1), .purge_generation = 1, .pool = PoolId(1), .group = PgNumber(group)});
  }
  const MapEpoch before = mon_->state()->map.epoch;
  EXPECT_EQ(mon_->report(report).value(), before.next()) << "one epoch for one report";
  EXPECT_TRUE(mon_->state()->map.images.empty());
}

// Keeps a map of its own, by the updates alone.
class Follower final : public MapFollower {
 public:
  explicit Follower(Mon& mon) : mon_(mon) {}
  void map_changed() override {
    const std::lock_guard lock(mutex_);
    while (const auto update =
               mon_.update_after({map_.cluster, map_.store_incarnation, map_.epoch}))
      EXPECT_TRUE(apply(map_, *update));
  }
  void end() override { ended = true; }
  ClusterMap map() {
    const std::lock_guard lock(mutex_);
    return map_;
  }
  std::atomic<bool> ended{false};

 private:
  Mon& mon_;
  std::mutex mutex_;
  ClusterMap map_;
};

// Calls come on many threads of gRPC at once. Run with ThreadSanitizer.
TEST_F(MonTest, commands_reports_and_followers_on_many_threads) {
  must(CreateOsd{device_id(1), "a"});
  must(boot(1));
  const auto follower = std::make_shared<Follower>(*mon_);
  mon_->follow(follower);
  follower->map_changed();
  std::vector<std::thread> threads;
  for (int writer = 0; writer < 2; ++writer) {
    threads.emplace_back([&, writer] {
      for (int i = 0; i < 50; ++i) {
        must(CreateImage{{"rbd", std::to_string(writer) + "-" + std::to_string(i)}, 4096});
      }
    });
  }
  threads.emplace_back([&] {
    for (int i = 0; i < 50; ++i) {
      mon_->tick(seconds(6));
      EXPECT_TRUE(mon_->report({.osd = OsdId(0), .incarnation = 1}).has_value());
      EXPECT_EQ(mon_->status().osds.size(), 1u);
    }
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(mon_->state()->map.images.size(), 100u);
  EXPECT_EQ(follower->map(), mon_->state()->map);
  mon_->stop();
  EXPECT_TRUE(follower->ended);
  mon_->unfollow(follower.get());
}

}  // namespace
}  // namespace sarsen
