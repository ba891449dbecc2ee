// A device in the simulator with a small store geometry, for tests of the store's parts.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include <gtest/gtest.h>

#include "dataplane/store/superblock.h"
#include "tests/sim/run_task.h"
#include "tests/sim/sim_disk.h"
#include "tests/sim/sim_node.h"
#include "tests/sim/simulator.h"

namespace sarsen {

// Small enough that a journal wraps within a test.
inline FormatSizes small_sizes() {
  return {.journal_bytes = 8 * 64 * kKiB,
          .segment_bytes = 64 * kKiB,
          .chunk_bytes = 64 * kKiB,
          .table_region_bytes = 32 * kKiB,
          .lane_count = 2};
}

// What a test made on a node: given to it before a crash, so that it dies after its coroutines and
// before the node's Env, as a process does.
struct Holder final : sim::Program {
  std::shared_ptr<void> object;
};
inline void hold_for_crash(sim::SimNode& node, std::shared_ptr<void> object) {
  static_cast<Holder*>(node.program())->object = std::move(object);
}
inline void start_with_holder(sim::SimNode& node) {
  node.set_factory([](sim::SimNode&) { return std::make_unique<Holder>(); });
  node.start();
}

class StoreFixture : public testing::Test {
 protected:
  explicit StoreFixture(std::uint64_t seed = 1, std::uint64_t device_bytes = 4 * kMiB)
      : sim({.seed = seed}),
        disk(sim.add_disk({.size_bytes = device_bytes})),
        node(sim.add_node({.disks = {&disk}})) {
    superblock.device = Uuid{std::byte{1}, std::byte{2}, std::byte{3}};
    superblock.sequence = 1;
    superblock.start_count = 1;
    superblock.journal_salt = 42;
    superblock.geometry = *choose_geometry(device_bytes, small_sizes());
    start_with_holder(node);
  }

  template <typename T>
  T run(Task<T> task) {
    auto value = sim::run_task(node, std::move(task));
    SARSEN_ASSERT(value.has_value(), "the node did not crash");
    return *std::move(value);
  }
  // Power fails; the node starts again with what survived.
  void power_cycle() {
    node.crash(sim::CrashKind::power_loss);
    node.start();
  }

  sim::Simulator sim;
  sim::SimDisk& disk;
  sim::SimNode& node;
  Superblock superblock;
};

}  // namespace sarsen
