// An open store on a simulated device, for tests of the store as a whole.
#pragma once

#include <memory>
#include <vector>

#include "dataplane/base/crc32c.h"
#include "dataplane/store/store.h"
#include "tests/model/payload.h"
#include "tests/unit/store/store_fixture.h"

namespace sarsen {

// A store on a simulated device; every write has an id that its blocks carry.
class StoreTest : public testing::Test {
 protected:
  static constexpr std::uint64_t kImage = 1;
  using Ids = std::vector<std::uint64_t>;

  explicit StoreTest(std::uint64_t device_bytes = 16 * kMiB)
      : sim({.seed = 3}),
        disk(sim.add_disk({.size_bytes = device_bytes})),
        node(sim.add_node({.disks = {&disk}})) {
    start_with_holder(node);
    FormatSizes sizes = small_sizes();
    sizes.table_region_bytes = 256 * kKiB;
    const auto formatted =
        run(Store::format(node.env(), node.disk(), node.blocking_disk(), {.sizes = sizes}));
    SARSEN_ASSERT(formatted.has_value(), "formatting succeeds");
    open();
  }
  ~StoreTest() override {
    if (store) stop();
  }

  template <typename T>
  T run(Task<T> task) {
    auto value = sim::run_task(node, std::move(task));
    SARSEN_ASSERT(value.has_value(), "the node did not crash");
    return *std::move(value);
  }
  void open() {
    auto opened = run(Store::open(node.env(), node.disk(), node.blocking_disk(), limits));
    ASSERT_TRUE(opened) << opened.error().message();
    store = *std::move(opened);
  }
  void stop() {
    ASSERT_TRUE(sim::run_task(node, store->stop()));
    store.reset();
  }
  void power_cycle() {
    hold_for_crash(node, std::shared_ptr<Store>(std::move(store)));
    node.crash(sim::CrashKind::power_loss);
    node.start();
    open();
  }

  static ObjectKey object(std::uint64_t number) {
    return {.pool = PoolId(1), .family = kImage, .branch = 1, .object_number = number};
  }
  static std::vector<std::byte> data_of(std::uint64_t number, std::uint32_t first,
                                        std::uint32_t blocks, std::uint64_t id) {
    std::vector<std::byte> data(std::size_t{blocks} * kBlockBytes);
    model::fill_blocks(data, kImage, BlockIndex(number * kBlocksPerObject + first),
                       model::WriteId(id));
    return data;
  }
  static Task<Result<void>> write_task(Store* store, std::uint64_t number, std::uint32_t first,
                                       std::vector<std::byte> data) {
    std::vector<std::uint32_t> checksums;
    for (std::size_t at = 0; at < data.size(); at += kBlockBytes) {
      checksums.push_back(crc32c(std::span(data).subspan(at, kBlockBytes)));
    }
    co_return co_await store->write({.object = object(number),
                                     .first_block = first,
                                     .data = data,
                                     .checksums = checksums,
                                     .stamp = {}});
  }
  Result<void> write(std::uint64_t number, std::uint32_t first, std::uint32_t blocks,
                     std::uint64_t id) {
    return run(write_task(store.get(), number, first, data_of(number, first, blocks, id)));
  }
  // The id that each block holds; 0 for zeros, ~0 for corrupt.
  std::vector<std::uint64_t> read(std::uint64_t number, std::uint32_t first, std::uint32_t blocks) {
    std::vector<std::byte> into(std::size_t{blocks} * kBlockBytes);
    const auto outcome = run(store->read_partial(object(number), first, into));
    SARSEN_ASSERT(outcome.has_value(), "reads answer");
    std::vector<std::uint64_t> ids;
    for (std::uint32_t i = 0; i < blocks; ++i) {
      const auto bytes = std::span(into).subspan(std::size_t{i} * kBlockBytes).first<kBlockBytes>();
      const auto name = model::read_block(bytes);
      ids.push_back(name ? name->write.value : ~std::uint64_t{1});
    }
    for (const auto block : outcome->corrupt_blocks) ids[block - first] = ~std::uint64_t{0};
    return ids;
  }
  void expect_balanced() {
    const auto account = run(store->audit());
    EXPECT_TRUE(account) << account.error().message();
  }
  void checkpoint() {
    const auto done = run(store->checkpoint());
    ASSERT_TRUE(done) << done.error().message();
  }

  sim::Simulator sim;
  sim::SimDisk& disk;
  sim::SimNode& node;
  StoreLimits limits;
  std::unique_ptr<Store> store;
};

}  // namespace sarsen
