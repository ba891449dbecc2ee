#include "dataplane/membership/rpc/map_relay.h"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

namespace sarsen {
namespace {

std::shared_ptr<const ClusterMap> map_of(std::uint64_t epoch) {
  auto map = std::make_shared<ClusterMap>();
  map->epoch = MapEpoch(epoch);
  map->store_incarnation = epoch * 7;
  return map;
}

struct Shard {
  MapRelay* relay;
  Reactor* reactor;
  std::uint64_t until = 0;
  std::atomic<int>* ready = nullptr;
};

Task<void> follow(Shard* shard) {
  SubscribedMap source(*shard->relay, *shard->reactor);
  ++*shard->ready;
  MapEpoch seen = source.current()->epoch;
  while (seen < MapEpoch(shard->until)) {
    EXPECT_TRUE((co_await source.wait_newer(seen)).has_value());
    EXPECT_GT(source.current()->epoch, seen);
    seen = source.current()->epoch;
    EXPECT_EQ(source.current()->store_incarnation, seen.value * 7) << "a whole map, or none";
  }
}

// The map crosses threads at any moment, also while shards come and go. Run with ThreadSanitizer.
TEST(MapRelay, shards_get_the_newest_map_from_another_thread) {
  constexpr std::uint64_t kMaps = 500;
  MapRelay relay;
  std::atomic<int> ready{0};
  std::vector<std::thread> shards;
  for (int i = 0; i < 2; ++i) {
    shards.emplace_back([&] {
      const auto reactor = Reactor::create({}).value();
      // Twice, as when a daemon's shards end one after the other.
      for (const std::uint64_t until : {kMaps / 2, kMaps}) {
        Shard shard{.relay = &relay, .reactor = reactor.get(), .until = until, .ready = &ready};
        Shard* const followed = &shard;
        reactor->run_task(follow(followed));
      }
    });
  }
  while (ready < 2) std::this_thread::yield();
  for (std::uint64_t epoch = 1; epoch <= kMaps; ++epoch) {
    relay.publish(map_of(epoch));
    std::this_thread::yield();
  }
  for (std::thread& shard : shards) shard.join();
  EXPECT_EQ(relay.current()->epoch, MapEpoch(kMaps));
}

// Answers of two streams may cross; a shard must never go back.
TEST(MapRelay, an_older_map_is_ignored) {
  MapRelay relay;
  relay.publish(map_of(5));
  relay.publish(map_of(4));
  EXPECT_EQ(relay.current()->epoch, MapEpoch(5));
}

}  // namespace
}  // namespace sarsen
