#include "dataplane/membership/rpc/map_subscription.h"

#include <atomic>
#include <thread>

#include "tests/unit/mon/rpc_support.h"

namespace sarsen {
namespace {

std::unique_ptr<Reactor> make_reactor() {
  return Reactor::create({}).value();
}

std::unique_ptr<MapSubscription> subscribe(const MonOnSocket& server, wire::ClusterId cluster = {},
                                           Logger log = {}) {
  return MapSubscription::start({.mon = server.address(),
                                 .cluster = cluster,
                                 .reconnect_min = milliseconds(1),
                                 .reconnect_max = milliseconds(20)},
                                std::move(log))
      .value();
}

void await_epoch(const MapSubscription& subscription, MapEpoch epoch) {
  await([&] { return subscription.current()->epoch >= epoch; });
}

Task<void> wait_for_images(MapSubscription* subscription, Reactor* reactor, std::size_t count) {
  SubscribedMap map(*subscription, *reactor);
  while (map.current()->images.size() < count) {
    EXPECT_TRUE((co_await map.wait_newer(map.current()->epoch)).has_value());
  }
}

// OSDs and blockd act on the map of their shard: every change must get there, on every shard.
TEST(MapSubscription, every_shard_sees_every_change) {
  MonOnSocket server;
  const auto subscription = subscribe(server);
  std::vector<std::thread> shards;
  for (int i = 0; i < 2; ++i) {
    shards.emplace_back([&] {
      const auto reactor = make_reactor();
      reactor->run_task(wait_for_images(subscription.get(), reactor.get(), 20));
    });
  }
  const auto mon = server.client();
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(mon->create_image({"rbd", "disk" + std::to_string(i)}, kMiB).has_value());
  }
  for (std::thread& shard : shards) shard.join();
  await_epoch(*subscription, server.mon().state()->map.epoch);
  EXPECT_EQ(*subscription->current(), server.mon().state()->map);
}

// Steady-state I/O needs no mon; when it is back, its followers go on from where they were.
TEST(MapSubscription, keeps_the_last_map_while_the_mon_is_away_and_goes_on_after) {
  MonOnSocket server;
  const auto subscription = subscribe(server);
  await_epoch(*subscription, MapEpoch(1));
  EXPECT_TRUE(subscription->connected());
  server.stop();
  await([&] { return !subscription->connected(); });
  EXPECT_EQ(subscription->current()->epoch, MapEpoch(1));
  server.start();
  ASSERT_TRUE(server.mon().run(CreateImage{kDisk, kMiB}).has_value());
  await_epoch(*subscription, MapEpoch(2));
  EXPECT_EQ(*subscription->current(), server.mon().state()->map);
}

// A mon of another cluster on the same address must not fence every image of this one.
TEST(MapSubscription, a_map_of_another_cluster_is_not_believed) {
  std::atomic<int> refused{0};
  const auto output = LogOutput::to_function(
      LogLevel::error, [] { return kWallTimeNs; },
      [&](std::string_view line) {
        if (line.find("another cluster") != std::string_view::npos) ++refused;
      });
  MonOnSocket server;
  const auto subscription = subscribe(server, {}, Logger(*output));
  await_epoch(*subscription, MapEpoch(1));
  const ClusterMap before = *subscription->current();
  server.stop();
  server.store.state.map.cluster[0] = 99;
  server.store.state.map.epoch = MapEpoch(50);
  server.start();
  await([&] { return refused > 0; });
  subscription->stop();
  EXPECT_EQ(*subscription->current(), before);

  refused = 0;
  const auto strict = subscribe(server, before.cluster, Logger(*output));
  await([&] { return refused > 0; });
  EXPECT_EQ(strict->current()->epoch, MapEpoch(0));
}

// A daemon that ends must not hang on a mon that never answers, nor on one that has nothing new.
TEST(MapSubscription, stops_promptly_with_and_without_a_mon) {
  MonOnSocket server;
  {
    const auto idle = subscribe(server);
    await_epoch(*idle, MapEpoch(1));
  }
  server.stop();
  const auto lost =
      MapSubscription::start({.mon = server.address(), .reconnect_min = seconds(3600)}).value();
  lost->stop();
  lost->stop();
}

Task<void> follow_once(MapSubscription* subscription, Reactor* reactor, MapEpoch* seen) {
  SubscribedMap map(*subscription, *reactor);
  *seen = map.current()->epoch;
  map.suspect(*seen);
  co_return;
}

// A shard that starts later needs no next change to know the map.
TEST(MapSubscription, a_shard_that_comes_later_starts_with_the_map) {
  MonOnSocket server;
  const auto subscription = subscribe(server);
  await_epoch(*subscription, MapEpoch(1));
  MapEpoch seen;
  const auto reactor = make_reactor();
  reactor->run_task(follow_once(subscription.get(), reactor.get(), &seen));
  EXPECT_EQ(seen, MapEpoch(1));
}

// Daemons start and end while the map changes; whoever stays misses nothing.
TEST(MapSubscription, many_followers_come_and_go_while_the_map_changes) {
  MonOnSocket server;
  const auto steady = subscribe(server);
  for (int i = 0; i < 10; ++i) {
    const auto brief = subscribe(server);
    ASSERT_TRUE(server.mon().run(CreateImage{{"rbd", std::to_string(i)}, kMiB}).has_value());
    if (i % 2 == 0) await_epoch(*brief, MapEpoch(1));
  }
  await_epoch(*steady, server.mon().state()->map.epoch);
}

}  // namespace
}  // namespace sarsen
