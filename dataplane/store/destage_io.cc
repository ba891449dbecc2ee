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

Extent extent_of(const RunChange& run, BlockIndex home) {
  const WriteStamp& stamp = run.record->stamp;
  Extent extent;
  extent.first_block = run.first;
  extent.block_count = run.count;
  extent.device_block = home;
  extent.lane_sequence = run.sequence();
  extent.pg_epoch = stamp.pg_epoch;
  extent.pg_sequence = stamp.pg_sequence;
  extent.change_generation = stamp.change_generation;
  for (std::uint32_t i = 0; i < run.count; ++i) extent.checksums.push_back(run.checksum(i));
  return extent;
}

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
  std::vector<DeviceRun> sources;
  for (const LeafChange& change : plan->leaves) {
    for (const RunChange& run : change.runs) {
      if (run.kind == ChangeKind::move) sources.push_back({run.source, run.count});
    }
  }
  std::sort(sources.begin(), sources.end(),
            [](const DeviceRun& a, const DeviceRun& b) { return a.start < b.start; });
  std::vector<Task<Result<void>>> tasks;
  std::size_t i = 0;
  while (i < sources.size()) {
    const BlockIndex start = sources[i].start;
    BlockIndex end = start;
    for (; i < sources.size() && sources[i].start.value <= end.value + kReadGapBlocks &&
           sources[i].end().value - start.value <= kReadBlocksMax;
         ++i) {
      end = std::max(end, sources[i].end());
    }
    const auto blocks = static_cast<std::uint32_t>(end.value - start.value);
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
  YieldBudget budget(state_.env.executor, state_.limits.leaves_per_turn);
  const std::vector<LeafChange>& changes = batch->plan.leaves;
  batch->leaves.reserve(changes.size());
  while (batch->leaves.size() < changes.size()) {
    const std::size_t first = batch->leaves.size();
    const std::size_t end = std::min(first + kSlice, changes.size());
    std::vector<LeafKey> keys;
    keys.reserve(end - first);
    for (std::size_t i = first; i < end; ++i) keys.push_back(changes[i].key);
    auto leaves = co_await state_.leaves->get(keys);
    if (!leaves && leaves.error().error_class() == ErrorClass::corrupt) {
      leaves = co_await leaves_around_damage(std::move(keys));
    }
    if (!leaves) co_return fail(leaves.error());
    std::vector<LeafWork> works;
    works.reserve(end - first);
    for (std::size_t i = first; i < end; ++i) {
      LeafWork& work = works.emplace_back();
      work.old = (*leaves)[i - first];
      SARSEN_CO_TRY(co_await prepare_leaf(batch, &changes[i], &work));
      co_await budget.spend();
    }
    // Nobody else touches the batch, and what is read does not change: leaves are immutable, and so
    // are the records of settled segments.
    co_await state_.env.blocking.run([&works, batch, pieces] {
      for (const LeafWork& work : works) {
        IndexLeaf leaf = work.sound ? *work.sound : *work.old;
        change_leaf(*batch, *work.change, leaf, work.homes, *pieces);
        batch->leaves.push_back(
            {.key = work.change->key, .leaf = std::make_shared<const IndexLeaf>(std::move(leaf))});
      }
      return true;
    });
  }
  state_.corrupt_blocks_found += batch->blocks_corrupt;
  co_return Result<void>{};
}

// What needs the allocator, and so this shard: the homes, and what is done about damage.
Task<Result<void>> Destager::prepare_leaf(Batch* batch, const LeafChange* change, LeafWork* work) {
  work->change = change;
  if (!work->old) {
    work->sound.emplace();
    work->mended = all_others_lost(*batch, *change);
  } else if (is_damaged(*change, *work->old)) {
    work->sound = *work->old;
    work->mended = without_damage(*batch, *change, *work->sound);
  }
  if (work->mended) {
    work->change = &*work->mended;
    SARSEN_CO_TRY(co_await promise_lost(&batch->plan, work->change));
  }
  auto homes = homes_for(*batch, work->sound ? *work->sound : *work->old, *work->change);
  if (!homes) co_return fail(homes.error());
  work->homes = *homes;
  co_return Result<void>{};
}

// Homes for the blocks that are moved: where they are when that can be overwritten (decision 0006),
// else fresh ones, together if possible.
Result<Destager::Homes> Destager::homes_for(Batch& batch, const IndexLeaf& leaf,
                                            const LeafChange& change) {
  Homes homes{};
  std::array<bool, kLeafBlocks> homeless{};
  std::uint32_t homeless_count = 0;
  std::optional<BlockIndex> hint;
  for (const RunChange& run : change.runs) {
    for (std::uint32_t block = run.first; block < run.end(); ++block) {
      const auto old = change.clear_first ? std::nullopt : leaf.lookup(block);
      if (old) hint = old->device_block;
      if (!run.needs_home()) continue;
      const bool in_place = old && !old->extent->shared && old->extent->compression() == nullptr;
      if (in_place) {
        homes[block] = old->device_block;
      } else {
        homeless[block] = true;
        ++homeless_count;
      }
    }
  }
  if (homeless_count == 0) return homes;
  ExtentAllocator& allocator = state_.lanes[change.lane.value].allocator;
  // The promise is kept until the very moment of its use: writers wait for nothing else.
  std::uint64_t& promised = batch.plan.reservations[change.lane.value];
  const std::uint64_t used = std::min<std::uint64_t>(promised, homeless_count);
  promised -= used;
  allocator.unreserve(used);
  auto runs = allocator.allocate(homeless_count, hint, Purpose::destage);
  if (!runs) {
    if (allocator.reserve(used, Purpose::destage)) promised += used;
    short_of_homes_ = change.lane;
    return fail(make_error(StoreError::no_space, runs.error().message()));
  }
  std::uint32_t block = 0;
  for (const DeviceRun& run : *runs) {
    batch.allocated[change.lane.value].push_back(run);
    for (std::uint32_t i = 0; i < run.blocks; ++i, ++block) {
      while (!homeless[block]) ++block;
      homes[block] = BlockIndex(run.start.value + i);
    }
  }
  return homes;
}

void Destager::change_leaf(Batch& batch, const LeafChange& change, IndexLeaf& leaf,
                           const Homes& homes, const Pieces& pieces) {
  auto& freed = batch.freed[change.lane.value];
  const auto keep = [&freed](FreedRuns runs) {
    freed.insert(freed.end(), runs.begin(), runs.end());
  };
  if (change.clear_first) keep(leaf.remove(0, kLeafBlocks));
  for (const RunChange& run : change.runs) {
    switch (run.kind) {
      case ChangeKind::zero: keep(leaf.remove(run.first, run.count)); break;
      case ChangeKind::adopt:
        keep(leaf.put(extent_of(run, run.source)));
        batch.adopted[change.lane.value].push_back({run.source, run.count});
        break;
      case ChangeKind::move:
      case ChangeKind::lost: put_moved(batch, change, run, homes, leaf, pieces); break;
    }
  }
}

// A run that goes home, in parts that stay together there and are all good or all bad.
void Destager::put_moved(Batch& batch, const LeafChange& change, const RunChange& run,
                         const Homes& homes, IndexLeaf& leaf, const Pieces& pieces) {
  const auto is_good = [&](std::uint32_t i) {  // I-STORE-8
    return run.kind == ChangeKind::move &&
           pieces.is_good(BlockIndex(run.source.value + i), run.checksum(i));
  };
  bool good = is_good(0);
  for (std::uint32_t first = 0; first < run.count;) {
    const BlockIndex home = homes[run.first + first];
    std::uint32_t end = first + 1;
    bool next_good = good;
    for (; end < run.count; ++end) {
      next_good = is_good(end);
      if (next_good != good || homes[run.first + end].value != home.value + end - first) break;
    }
    const RunChange part = part_of(run, run.first + first, run.first + end);
    Extent extent = extent_of(part, home);
    extent.corrupt = !good;
    if (good) {
      batch.moves.push_back({.source = part.source, .home = home, .blocks = part.count});
    } else {
      batch.blocks_corrupt += part.count;
    }
    for (const FreedRun& freed : leaf.put(std::move(extent))) {
      batch.freed[change.lane.value].push_back(freed);
    }
    good = next_good;
    first = end;
  }
}

// ------------------------------------------------------------------------------- going home

Task<Result<void>> Destager::write_home_run(std::span<const Move> moves, const Pieces* pieces) {
  std::size_t bytes = 0;
  for (const Move& move : moves) bytes += std::size_t{move.blocks} * kBlockBytes;
  const ByteOffset home(moves.front().home.value * kBlockBytes);
  state_.home_bytes_written += bytes;
  if (const auto data = pieces->together(moves)) co_return co_await state_.disk.write(home, *data);
  auto staging = state_.env.buffers.allocate(bytes);
  if (!staging) co_return fail(staging.error());
  std::byte* to = staging->data();
  for (const Move& move : moves) {
    const auto data = pieces->blocks(move.source, move.blocks);
    std::memcpy(to, data.data(), data.size());
    to += data.size();
  }
  co_return co_await state_.disk.write(home, staging->span(0, bytes));
}

// One of those who write side by side: takes the next run until none is left or one has failed.
Task<Result<void>> Destager::write_next_homes(HomeRuns* runs, const Pieces* pieces) {
  while (!runs->failed && !runs->left.empty()) {
    const std::uint64_t start = runs->left.front().home.value;
    std::uint64_t blocks = runs->left.front().blocks;
    std::size_t count = 1;
    for (; count < runs->left.size(); ++count) {
      const Move& next = runs->left[count];
      if (next.home.value != start + blocks || blocks + next.blocks > kWriteBlocksMax) break;
      blocks += next.blocks;
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
  if (done && state_.disk.info().volatile_cache) done = co_await state_.flush();  // I-STORE-6
  if (done || is(done.error(), RuntimeError::out_of_memory)) co_return done;
  // Home blocks may be torn now; the journal still has them, and keeps them.
  state_.fail_writes(make_error(StoreError::device_failed, done.error().message()));
  co_return fail(*state_.failure);
}

}  // namespace sarsen
