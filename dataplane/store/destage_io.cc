// The data of a batch: from the journal into memory, into new leaves, and home.
#include <algorithm>
#include <cstring>
#include <utility>

#include "dataplane/base/crc32c.h"
#include "dataplane/runtime/when_all.h"
#include "dataplane/store/destage_pieces.h"
#include "dataplane/store/destager.h"
#include "dataplane/store/error.h"

namespace sarsen {
namespace {

// Journal reads and home writes are cut and merged at these sizes.
constexpr int kReadAttempts = 5;  // before a block counts as bad
constexpr std::uint32_t kReadBlocksMax = 256;
constexpr std::uint32_t kReadGapBlocks =
    4;  // reading over a short gap is cheaper than a second read
constexpr std::uint32_t kWriteBlocksMax = 64;
constexpr std::size_t kTransfersMax = 16;  // side by side

}  // namespace

Task<Result<void>> Destager::read_piece(BlockIndex start, std::uint32_t blocks, Pieces* pieces) {
  auto buffer = state_.env.buffers.allocate(std::size_t{blocks} * kBlockBytes);
  if (!buffer) co_return fail(buffer.error());
  Pieces::Piece piece{.start = start, .blocks = blocks, .data = *std::move(buffer), .bad = {}};
  piece.bad.assign(blocks, false);
  const ByteOffset offset(start.value * kBlockBytes);
  auto read =
      co_await state_.disk.read(offset, piece.data.span(0, std::size_t{blocks} * kBlockBytes));
  for (std::uint32_t i = 0; !read && i < blocks; ++i) {
    const std::size_t at = std::size_t{i} * kBlockBytes;
    auto single =
        co_await state_.disk.read(ByteOffset(offset.value + at), piece.data.span(at, kBlockBytes));
    for (int attempt = 1; attempt < kReadAttempts && !single; ++attempt) {
      single = co_await state_.disk.read(ByteOffset(offset.value + at),
                                         piece.data.span(at, kBlockBytes));
    }
    // A device that is gone says nothing about its blocks.
    if (!single && is(single.error(), RuntimeError::device_gone)) co_return fail(single.error());
    piece.bad[i] = !single.has_value();
  }
  pieces->add(std::move(piece));
  co_return Result<void>{};
}

Task<Result<void>> Destager::read_journal(const DestagePlan* plan, Pieces* pieces) {
  std::vector<BlockIndex> sources;
  for (const auto& [key, change] : plan->leaves) {
    for (const BlockChange& block : change.blocks) {
      if (block.kind == BlockChangeKind::move) sources.push_back(block.source);
    }
  }
  std::sort(sources.begin(), sources.end());
  std::vector<Task<Result<void>>> tasks;
  std::size_t i = 0;
  while (i < sources.size()) {
    const BlockIndex start = sources[i];
    BlockIndex last = start;
    for (; i < sources.size() && sources[i].value <= last.value + 1 + kReadGapBlocks &&
           sources[i].value - start.value < kReadBlocksMax;
         ++i) {
      last = sources[i];
    }
    const auto blocks = static_cast<std::uint32_t>(last.value - start.value + 1);
    tasks.push_back(read_piece(start, blocks, pieces));
    if (tasks.size() == kTransfersMax || i == sources.size()) {
      const auto results = co_await when_all(state_.env.executor, std::exchange(tasks, {}));
      SARSEN_CO_TRY(first_error(results));
    }
  }
  pieces->sort();
  co_return Result<void>{};
}

// ------------------------------------------------------------------------------- new leaves

Task<Result<void>> Destager::make_leaves(Batch* batch, const Pieces* pieces) {
  // In slices, so that the cache need not hold a whole batch.
  constexpr std::size_t kSlice = 1024;
  auto next = batch->plan.leaves.begin();
  while (next != batch->plan.leaves.end()) {
    std::vector<LeafKey> keys;
    auto end = next;
    for (; end != batch->plan.leaves.end() && keys.size() < kSlice; ++end) {
      keys.push_back(end->first);
    }
    auto leaves = co_await state_.leaves->get(std::move(keys));
    if (!leaves) {
      // Without the old leaf nobody knows what its other blocks are: that is for repair to solve.
      state_.fail_writes(leaves.error());
      co_return fail(leaves.error());
    }
    for (std::size_t i = 0; next != end; ++next, ++i) {
      IndexLeaf leaf = *(*leaves)[i];
      SARSEN_CO_TRY(change_leaf(*batch, next->second, leaf, *pieces));
      batch->leaves.push_back(
          {.key = next->first, .leaf = std::make_shared<const IndexLeaf>(std::move(leaf))});
    }
  }
  co_return Result<void>{};
}

// Homes for the blocks that are moved: where they are when that can be overwritten, else fresh
// ones, together if possible. In the order of `blocks`.
Result<std::vector<BlockIndex>> Destager::homes_for(Batch& batch, const IndexLeaf& leaf,
                                                    const LeafChange& change) {
  const std::vector<BlockChange>& blocks = change.blocks;
  std::vector<BlockIndex> homes(blocks.size());
  std::vector<std::size_t> homeless;
  std::optional<BlockIndex> hint;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto old = leaf.lookup(blocks[i].block);
    if (old) hint = old->device_block;
    if (blocks[i].kind != BlockChangeKind::move && blocks[i].kind != BlockChangeKind::lost)
      continue;
    const bool in_place = old && !old->extent->shared && old->extent->compression() == nullptr;
    if (in_place) {
      homes[i] = old->device_block;
    } else {
      homeless.push_back(i);
    }
  }
  if (homeless.empty()) return homes;
  std::sort(homeless.begin(), homeless.end(),
            [&](std::size_t a, std::size_t b) { return blocks[a].block < blocks[b].block; });
  ExtentAllocator& allocator = state_.lanes[change.lane.value].allocator;
  // The promise is kept until the very moment of its use: writers wait for nothing else.
  std::uint64_t& promised = batch.plan.reservations[change.lane.value];
  const std::uint64_t used = std::min<std::uint64_t>(promised, homeless.size());
  promised -= used;
  allocator.unreserve(used);
  const auto wanted = static_cast<std::uint32_t>(homeless.size());
  auto runs = allocator.allocate(wanted, hint, Purpose::destage);
  if (!runs) {
    if (allocator.reserve(used, Purpose::destage)) promised += used;
    return fail(make_error(StoreError::no_space, runs.error().message()));
  }
  std::size_t at = 0;
  for (const DeviceRun& run : *runs) {
    batch.allocated[change.lane.value].push_back(run);
    for (std::uint32_t i = 0; i < run.blocks; ++i, ++at) {
      homes[homeless[at]] = BlockIndex(run.start.value + i);
    }
  }
  return homes;
}

Result<void> Destager::change_leaf(Batch& batch, const LeafChange& change, IndexLeaf& leaf,
                                   const Pieces& pieces) {
  auto& freed = batch.freed[change.lane.value];
  const auto keep = [&freed](FreedRuns runs) {
    freed.insert(freed.end(), runs.begin(), runs.end());
  };
  if (change.clear_first) keep(leaf.remove(0, kLeafBlocks));
  auto homes = homes_for(batch, leaf, change);
  if (!homes) return fail(homes.error());
  for (std::size_t i = 0; i < change.blocks.size(); ++i) {
    const BlockChange& block = change.blocks[i];
    if (block.kind == BlockChangeKind::zero) {
      keep(leaf.remove(block.block, 1));
      continue;
    }
    Extent extent;
    extent.first_block = block.block;
    extent.block_count = 1;
    extent.lane_sequence = block.sequence;
    extent.pg_epoch = block.pg_epoch;
    extent.pg_sequence = block.pg_sequence;
    extent.change_generation = block.change_generation;
    extent.checksums = {block.checksum};
    if (block.kind == BlockChangeKind::adopt) {
      extent.device_block = block.source;
      batch.adopted[change.lane.value].push_back(block.source);
    } else {
      extent.device_block = (*homes)[i];
      // I-STORE-8
      extent.corrupt =
          block.kind == BlockChangeKind::lost || !pieces.is_good(block.source, block.checksum);
      if (extent.corrupt) {
        ++state_.corrupt_blocks_found;
      } else {
        batch.moves.push_back(
            {.source = block.source, .home = extent.device_block, .checksum = block.checksum});
      }
    }
    keep(leaf.put(std::move(extent)));
  }
  return {};
}

// ------------------------------------------------------------------------------- going home

Task<Result<void>> Destager::write_home_run(std::span<const Move> moves, const Pieces* pieces) {
  const std::size_t bytes = moves.size() * kBlockBytes;
  const ByteOffset home(moves.front().home.value * kBlockBytes);
  state_.home_bytes_written += bytes;
  if (const auto data = pieces->together(moves)) co_return co_await state_.disk.write(home, *data);
  auto staging = state_.env.buffers.allocate(bytes);
  if (!staging) co_return fail(staging.error());
  for (std::size_t i = 0; i < moves.size(); ++i) {
    const auto data = pieces->block(moves[i].source);
    std::memcpy(staging->data() + i * kBlockBytes, data.data(), kBlockBytes);
  }
  co_return co_await state_.disk.write(home, staging->span(0, bytes));
}

// One of those who write side by side: takes the next run until none is left or one has failed.
Task<Result<void>> Destager::write_next_homes(HomeRuns* runs, const Pieces* pieces) {
  while (!runs->failed && !runs->left.empty()) {
    std::size_t count = 1;
    while (count < runs->left.size() && count < kWriteBlocksMax &&
           runs->left[count].home.value == runs->left.front().home.value + count) {
      ++count;
    }
    const auto run = runs->left.first(count);
    runs->left = runs->left.subspan(count);
    auto written = co_await write_home_run(run, pieces);
    runs->failed = runs->failed || !written;
    SARSEN_CO_TRY(std::move(written));
  }
  co_return Result<void>{};
}

Task<Result<void>> Destager::write_homes(const Batch* batch, const Pieces* pieces) {
  std::vector<Move> moves = batch->moves;
  std::sort(moves.begin(), moves.end(),
            [](const Move& a, const Move& b) { return a.home < b.home; });
  HomeRuns runs{.left = moves};
  std::vector<Task<Result<void>>> tasks;
  const std::size_t writers = std::min<std::size_t>(moves.size(), state_.limits.home_writes_max);
  for (std::size_t i = 0; i < writers; ++i) tasks.push_back(write_next_homes(&runs, pieces));
  auto done = first_error(co_await when_all(state_.env.executor, std::move(tasks)));
  const bool flush =
      state_.disk.info().volatile_cache && !state_.env.faults.planted("destage.no_flush");
  if (done && flush) done = co_await state_.flush();  // I-STORE-6
  if (done || is(done.error(), RuntimeError::out_of_memory)) co_return done;
  // Home blocks may be torn now; the journal still has them, and keeps them.
  state_.fail_writes(make_error(StoreError::device_failed, done.error().message()));
  co_return fail(*state_.failure);
}

}  // namespace sarsen
