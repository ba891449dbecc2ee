// A cluster for tests of the mon: states and commands in few words.
#pragma once

#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "dataplane/mon/machine/map_machine.h"

namespace sarsen {

inline constexpr std::int64_t kWallTimeNs = 1'700'000'000'000'000'000;
inline constexpr std::uint32_t kGroupBits = 2;
inline const ImageName kDisk{"rbd", "disk"};
inline constexpr HolderId kNodeA{11};
inline constexpr HolderId kNodeB{12};

inline Uuid device_id(std::uint8_t number) {
  Uuid uuid{};
  uuid[0] = std::byte{number};
  return uuid;
}

inline MonState new_cluster() {
  ClusterOptions options{.store_incarnation = 99, .group_bits = kGroupBits};
  options.cluster[0] = 7;
  return create_cluster(options).value();
}

// A cluster that commands are given to; each is expected to succeed unless said otherwise.
class TestCluster {
 public:
  const MonState& state() const { return state_; }
  const ClusterMap& map() const { return state_.map; }
  const PoolEntry& pool() const { return state_.map.pools.at(PoolId(1)); }
  const PgConfiguration& group(std::uint32_t number) const { return pool().groups.at(number); }
  const ImageEntry* image(const ImageName& name = kDisk) const {
    return state_.map.find_image(PoolId(1), name.name);
  }

  void run(const MonCommand& command) {
    auto next = decide(state_, command, kWallTimeNs);
    ASSERT_TRUE(next.has_value()) << next.error().message();
    state_ = *std::move(next);
  }
  // What it answered; the state stays.
  Error refused(const MonCommand& command) const {
    auto next = decide(state_, command, kWallTimeNs);
    EXPECT_FALSE(next.has_value()) << "was expected to be refused";
    return next ? make_error(MonError::garbled) : next.error();
  }
  bool changes(const MonCommand& command) {
    const MapEpoch before = state_.map.epoch;
    run(command);
    return state_.map.epoch != before;
  }

  OsdId add_osd(std::uint8_t device) {
    run(CreateOsd{device_id(device), "node-" + std::to_string(device)});
    for (const auto& [id, osd] : state_.map.osds) {
      if (osd.device == device_id(device)) return id;
    }
    return OsdId(~0u);
  }
  OsdBoot boot_of(std::uint8_t device, std::uint64_t start_counter) const {
    for (const auto& [id, osd] : state_.map.osds) {
      if (osd.device != device_id(device)) continue;
      return {.osd = id,
              .device = osd.device,
              .cluster = state_.map.cluster,
              .start_counter = start_counter,
              .boot_id = 1000 + start_counter,
              .address = "unix:/osd",
              .node = osd.node};
    }
    return {};
  }
  // One OSD that is up, and an image on it.
  void with_image() {
    add_osd(1);
    run(boot_of(1, 1));
    run(CreateImage{kDisk, 8 * kMiB});
  }
  NotePurged purged(std::uint32_t group, std::uint64_t generation) const {
    const OsdEntry& osd = state_.map.osds.begin()->second;
    return {osd.id,
            osd.incarnation,
            {{.image = image()->id,
              .purge_generation = generation,
              .pool = PoolId(1),
              .group = PgNumber(group)}}};
  }

 private:
  MonState state_ = new_cluster();
};

}  // namespace sarsen
