#include "dataplane/store/store_read.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "dataplane/base/crc32c.h"
#include "dataplane/runtime/when_all.h"
#include "dataplane/store/error.h"

namespace sarsen {
namespace {

// One read of the device; larger ones are cut so that the pieces run side by side.
constexpr std::uint32_t kRunBlocksMax = 64;
// A block whose checksum is wrong is read again this often: some devices answer wrongly once.
constexpr int kReadAttempts = 2;

std::uint32_t checksum_of_zeros() {
  static const std::uint32_t checksum = [] {
    const std::vector<std::byte> zeros(kBlockBytes);
    return crc32c(zeros);
  }();
  return checksum;
}

bool device_is_gone(const Error& error) {
  return is(error, RuntimeError::device_gone);
}

}  // namespace

Task<Result<std::vector<LeafPointer>>> StoreRead::leaves_of(ObjectKey object, BlockRange range) {
  const std::uint32_t first = range.first_block / kLeafBlocks;
  const std::uint32_t last = (range.first_block + range.block_count - 1) / kLeafBlocks;
  std::vector<LeafPointer> leaves(last - first + 1);
  if (state_.overlay.removal(object)) co_return leaves;  // the index has nothing to say
  std::vector<LeafKey> keys;
  bool all_in_memory = true;
  for (std::uint32_t number = first; number <= last; ++number) {
    keys.push_back({.object = object, .leaf = static_cast<std::uint16_t>(number)});
    leaves[number - first] = state_.leaves->find(keys.back());
    all_in_memory = all_in_memory && leaves[number - first] != nullptr;
  }
  if (all_in_memory) co_return leaves;
  if (range.block_count == 1 && state_.overlay.look(object, range.first_block, 1)[0].pending) {
    co_return leaves;
  }
  co_return co_await state_.leaves->get(std::move(keys));
}

std::vector<StoreRead::BlockPlan> StoreRead::plan(const ObjectKey& object, BlockRange range,
                                                  const std::vector<LeafPointer>& leaves) const {
  std::vector<BlockPlan> plan(range.block_count);
  const std::uint32_t first_leaf = range.first_block / kLeafBlocks;
  const auto add_pending = [&](const PendingPiece& piece) {
    for (std::uint32_t i = 0; i < piece.block_count; ++i) {
      BlockPlan& to = plan[piece.first_block + i - range.first_block];
      to.location = BlockIndex(piece.location.value + i);
      if (!piece.checksums.empty()) to.checksum = piece.checksums[i];
      switch (piece.kind) {
        case PendingKind::journal:
        case PendingKind::extent: to.source = Source::device; break;
        case PendingKind::zero: to.source = Source::zeros; break;
        case PendingKind::lost: to.source = Source::corrupt; break;
      }
    }
  };
  const auto add_home = [&](const IndexLeaf& leaf, std::uint32_t block) {
    const auto home = leaf.lookup(block % kLeafBlocks);
    if (!home) return;
    // Compressed units are not written yet; one in the index is of a newer version.
    const bool readable = !home->extent->corrupt && home->extent->compression() == nullptr;
    plan[block - range.first_block] = {.source = readable ? Source::device : Source::corrupt,
                                       .location = home->device_block,
                                       .checksum = home->checksum};
  };
  each_leaf_part(range.first_block, range.block_count,
                 [&](std::uint32_t first, std::uint32_t count) {
                   const LeafPointer& leaf = leaves[first / kLeafBlocks - first_leaf];
                   for (const PendingPiece& piece : state_.overlay.look(object, first, count)) {
                     if (piece.pending) {
                       add_pending(piece);
                     } else if (leaf) {
                       for (std::uint32_t i = 0; i < piece.block_count; ++i)
                         add_home(*leaf, piece.first_block + i);
                     }
                   }
                 });
  return plan;
}

std::vector<StoreRead::Run> StoreRead::runs_of(const std::vector<BlockPlan>& plan) {
  std::vector<Run> runs;
  for (std::uint32_t i = 0; i < plan.size(); ++i) {
    if (plan[i].source != Source::device) continue;
    Run* last = runs.empty() ? nullptr : &runs.back();
    if (last != nullptr && last->first + last->count == i && last->count < kRunBlocksMax &&
        last->location.value + last->count == plan[i].location.value) {
      ++last->count;
    } else {
      runs.push_back({.first = i, .count = 1, .location = plan[i].location});
    }
  }
  return runs;
}

Task<Result<bool>> StoreRead::read_block_again(BlockPlan block, std::span<std::byte> into) {
  for (int attempt = 1; attempt < kReadAttempts; ++attempt) {
    auto read = co_await state_.disk.read(ByteOffset(block.location.value * kBlockBytes), into);
    if (!read && device_is_gone(read.error())) co_return fail(read.error());
    if (read && crc32c(into) == block.checksum) co_return true;
  }
  co_return false;
}

Task<Result<std::vector<std::uint32_t>>> StoreRead::read_run(Run run, std::vector<BlockPlan>* plan,
                                                             std::span<std::byte> into) {
  const std::size_t bytes = std::size_t{run.count} * kBlockBytes;
  const bool aligned = reinterpret_cast<std::uintptr_t>(into.data()) % kBlockBytes == 0;
  Buffer bounce;
  if (!aligned) {
    auto buffer = state_.env.buffers.allocate(bytes);
    if (!buffer) co_return fail(buffer.error());
    bounce = *std::move(buffer);
  }
  const std::span<std::byte> target = aligned ? into : bounce.span(0, bytes);
  std::vector<std::uint32_t> bad;
  auto read = co_await state_.disk.read(ByteOffset(run.location.value * kBlockBytes), target);
  if (!read && device_is_gone(read.error())) co_return fail(read.error());
  for (std::uint32_t i = 0; i < run.count; ++i) {
    const auto block = target.subspan(std::size_t{i} * kBlockBytes, kBlockBytes);
    const BlockPlan& expected = (*plan)[run.first + i];
    if (state_.env.faults.planted("store.skip_verification")) continue;
    if (read && crc32c(block) == expected.checksum) continue;  // I-STORE-5
    auto again = co_await read_block_again(expected, block);
    if (!again) co_return fail(again.error());
    if (!*again) bad.push_back(run.first + i);
  }
  if (!aligned) std::memcpy(into.data(), bounce.data(), bytes);
  co_return bad;
}

Task<Result<ReadOutcome>> StoreRead::read(ObjectKey object, std::uint32_t first_block,
                                          std::span<std::byte> into) {
  const BlockRange range{.first_block = first_block,
                         .block_count = static_cast<std::uint32_t>(into.size() / kBlockBytes)};
  if (range.block_count == 0 || into.size() % kBlockBytes != 0 || first_block > kBlocksPerObject ||
      range.block_count > kBlocksPerObject - first_block) {
    co_return fail(make_error(StoreError::bad_request, "read: not a range of whole blocks"));
  }
  ++state_.reads;
  // From here on no block that we find is overwritten or reused until we are done (I-STORE-1).
  [[maybe_unused]] const auto token = state_.epochs.enter();
  auto leaves = co_await leaves_of(object, range);
  if (!leaves) co_return fail(leaves.error());
  auto blocks = plan(object, range, *leaves);

  ReadOutcome outcome;
  const auto runs = runs_of(blocks);
  std::vector<Result<std::vector<std::uint32_t>>> results;
  if (runs.size() == 1) {
    results.push_back(co_await read_run(runs[0], &blocks,
                                        into.subspan(std::size_t{runs[0].first} * kBlockBytes,
                                                     std::size_t{runs[0].count} * kBlockBytes)));
  } else if (!runs.empty()) {
    std::vector<Task<Result<std::vector<std::uint32_t>>>> tasks;
    for (const Run& run : runs) {
      tasks.push_back(read_run(run, &blocks,
                               into.subspan(std::size_t{run.first} * kBlockBytes,
                                            std::size_t{run.count} * kBlockBytes)));
    }
    results = co_await when_all(state_.env.executor, std::move(tasks));
  }
  for (auto& result : results) {
    if (!result) co_return fail(result.error());
    for (const std::uint32_t bad : *result) blocks[bad].source = Source::corrupt;
  }
  for (std::uint32_t i = 0; i < range.block_count; ++i) {
    const auto block = into.subspan(std::size_t{i} * kBlockBytes, kBlockBytes);
    if (blocks[i].source != Source::device) std::memset(block.data(), 0, block.size());
    if (blocks[i].source == Source::corrupt) outcome.corrupt_blocks.push_back(first_block + i);
    outcome.checksums.push_back(blocks[i].source == Source::device ? blocks[i].checksum
                                                                   : checksum_of_zeros());
  }
  state_.corrupt_blocks_found += outcome.corrupt_blocks.size();
  co_return outcome;
}

Task<Result<std::vector<AllocationRun>>> StoreRead::allocation(ObjectKey object, BlockRange range) {
  if (range.block_count == 0 || range.first_block > kBlocksPerObject ||
      range.block_count > kBlocksPerObject - range.first_block) {
    co_return fail(make_error(StoreError::bad_request, "allocation: not a range of an object"));
  }
  [[maybe_unused]] const auto token = state_.epochs.enter();
  auto leaves = co_await leaves_of(object, range);
  if (!leaves) co_return fail(leaves.error());
  std::vector<AllocationRun> runs;
  for (const BlockPlan& block : plan(object, range, *leaves)) {
    const bool allocated = block.source != Source::zeros;
    if (runs.empty() || runs.back().allocated != allocated) {
      runs.push_back({.block_count = 0, .allocated = allocated});
    }
    ++runs.back().block_count;
  }
  co_return runs;
}

}  // namespace sarsen
