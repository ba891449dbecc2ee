// What one leaf costs to encode and decode, and one allocation on a half full and on a nearly full
// lane. Bytes of a leaf are counters beside the times (rule S4).
#include <cstdint>
#include <deque>
#include <vector>

#include <benchmark/benchmark.h>

#include "dataplane/base/rng.h"
#include "dataplane/store/index/extent_allocator.h"
#include "dataplane/store/index/index_leaf_codec.h"
#include "tests/unit/store/index/leaf_samples.h"

namespace sarsen {
namespace {

const LeafKeyBytes kKey = encode_leaf_key({{PoolId(3), 1, 2, 1}, 5});

// `writes` equal writes filled one home area of 64 KiB, over the last 2^33 operations of the lane.
IndexLeaf leaf_of_writes(std::uint32_t writes) {
  Rng rng(writes);
  IndexLeaf leaf;
  const std::uint32_t blocks = kLeafBlocks / writes;
  for (std::uint32_t i = 0; i < writes; ++i) {
    Extent extent =
        plain_extent(i * blocks, blocks, (std::uint64_t{1} << 31) + std::uint64_t{i} * blocks);
    extent.lane_sequence =
        LaneSequence((std::uint64_t{1} << 44) + rng.below(std::uint64_t{1} << 33));
    extent.pg_sequence = PgSequence((std::uint64_t{1} << 40) + rng.below(std::uint64_t{1} << 33));
    extent.pg_epoch = PgEpoch(1000);
    extent.change_generation = 40;
    leaf.put(extent);
  }
  return leaf;
}

void encode(benchmark::State& state) {
  const IndexLeaf leaf = leaf_of_writes(static_cast<std::uint32_t>(state.range(0)));
  LeafValueBuffer buffer;
  std::size_t bytes = 0;
  for (auto _ : state) {
    const auto value = encode_leaf(leaf, kKey, buffer);
    benchmark::DoNotOptimize(buffer.data());
    bytes = value.size();
  }
  state.counters["stored_bytes"] = static_cast<double>(bytes);
  state.counters["memory_bytes"] = static_cast<double>(leaf.memory_bytes());
}
BENCHMARK(encode)->ArgName("writes")->Arg(1)->Arg(4)->Arg(16);

void decode(benchmark::State& state) {
  LeafValueBuffer buffer;
  const auto value =
      encode_leaf(leaf_of_writes(static_cast<std::uint32_t>(state.range(0))), kKey, buffer);
  for (auto _ : state) {
    auto leaf = decode_leaf(value, kKey);
    benchmark::DoNotOptimize(leaf);
  }
}
BENCHMARK(decode)->ArgName("writes")->Arg(1)->Arg(4)->Arg(16);

// An overwrite in place of one block of a leaf that one write filled, as destage does it.
void put_one_block(benchmark::State& state) {
  const IndexLeaf full = leaf_of_writes(1);
  Extent extent = plain_extent(7, 1, (std::uint64_t{1} << 31) + 7, std::uint64_t{1} << 45);
  for (auto _ : state) {
    IndexLeaf leaf = full;
    benchmark::DoNotOptimize(leaf.put(extent));
  }
}
BENCHMARK(put_one_block);

// A lane of 16 GiB in chunks of 64 MiB, filled to `percent` in pieces of 1 to 16 blocks in random
// places; then the oldest allocation is dropped for each new one, so that the fill stays.
void allocate(benchmark::State& state) {
  constexpr std::uint32_t kChunks = 256;
  constexpr std::uint32_t kChunkBlocks = 16384;
  const auto percent = static_cast<std::uint64_t>(state.range(0));
  const auto blocks = static_cast<std::uint32_t>(state.range(1));
  ExtentAllocator allocator(LaneId(1), {.reserve_permille = 0});
  for (std::uint32_t chunk = 0; chunk < kChunks; ++chunk) {
    allocator.add_chunk(ChunkIndex(chunk), BlockIndex(std::uint64_t{chunk} * kChunkBlocks),
                        kChunkBlocks);
  }
  Rng rng(1);
  const std::uint64_t total = std::uint64_t{kChunks} * kChunkBlocks;
  std::vector<DeviceRun> placed;
  while (allocator.account().free > total * (100 - percent) / 100) {
    const auto length = static_cast<std::uint32_t>(rng.between(1, 16));
    const DeviceRun run{BlockIndex(rng.below(total - length)), length};
    if (allocator.mark_used(run)) placed.push_back(run);
  }
  std::vector<DeviceRun>& live = placed;
  std::uint64_t ticket = 1;
  std::uint64_t runs_made = 0;
  std::uint64_t dropped = 0;
  for (auto _ : state) {
    auto runs = allocator.allocate(blocks, std::nullopt, Purpose::write);
    benchmark::DoNotOptimize(runs);
    state.PauseTiming();
    runs_made += runs->size();
    for (const DeviceRun& run : *runs) live.push_back(run);
    for (dropped += blocks; dropped > 0 && !live.empty();) {
      std::swap(live[rng.below(live.size())], live.back());
      DeviceRun& run = live.back();
      if (run.blocks > dropped) break;
      dropped -= run.blocks;
      (void)allocator.free_to_quarantine(run, CommitTicket(ticket));
      live.pop_back();
    }
    allocator.release_quarantine(CommitTicket(ticket++));
    state.ResumeTiming();
  }
  state.counters["runs"] = static_cast<double>(runs_made) / static_cast<double>(state.iterations());
}
BENCHMARK(allocate)
    ->ArgNames({"percent", "blocks"})
    ->ArgsProduct({{50, 95}, {1, 16, 256}})
    ->Iterations(20000);

}  // namespace
}  // namespace sarsen

BENCHMARK_MAIN();
