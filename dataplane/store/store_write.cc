#include "dataplane/store/store_write.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "dataplane/base/crc32c.h"
#include "dataplane/runtime/when_all.h"
#include "dataplane/store/error.h"

namespace sarsen {
namespace {

// What a small write may carry; also the bits of a reservation mask.
constexpr std::uint32_t kPieceBlocks = 8;

Result<void> check(const WriteRequest& request) {
  const std::size_t blocks = request.data.size() / kBlockBytes;
  if (blocks == 0 || request.data.size() % kBlockBytes != 0 ||
      request.first_block > kBlocksPerObject || blocks > kBlocksPerObject - request.first_block) {
    return fail(make_error(StoreError::bad_request,
                           "write of " + std::to_string(request.data.size()) + " bytes at block " +
                               std::to_string(request.first_block) + ", an object has " +
                               std::to_string(kBlocksPerObject) + " blocks"));
  }
  if (request.checksums.size() != blocks) {
    return fail(make_error(StoreError::bad_request, "one checksum for each block"));
  }
  for (std::size_t i = 0; i < blocks; ++i) {
    if (crc32c(request.data.subspan(i * kBlockBytes, kBlockBytes)) != request.checksums[i]) {
      return fail(make_error(StoreError::corrupt_block,
                             "data of block " + std::to_string(request.first_block + i) +
                                 " was damaged on its way to the store"));
    }
  }
  return {};
}

JournalRecord record_of(const WriteRequest& request, const Lane& lane, RecordKind kind) {
  JournalRecord record;
  record.kind = kind;
  record.lane = lane.id;
  record.object = request.object;
  record.first_block = request.first_block;
  record.block_count = static_cast<std::uint32_t>(request.data.size() / kBlockBytes);
  record.stamp = request.stamp;
  record.checksums.assign(request.checksums.begin(), request.checksums.end());
  return record;
}

WriteRequest part_of(const WriteRequest& request, std::uint32_t first, std::uint32_t blocks) {
  WriteRequest part = request;
  part.first_block = request.first_block + first;
  part.data =
      request.data.subspan(std::size_t{first} * kBlockBytes, std::size_t{blocks} * kBlockBytes);
  part.checksums = request.checksums.subspan(first, blocks);
  return part;
}

}  // namespace

Task<Result<void>> StoreWrite::write(WriteRequest request) {
  if (state_.failure) co_return fail(*state_.failure);
  SARSEN_CO_TRY(check(request));
  const std::size_t blocks = request.data.size() / kBlockBytes;
  Result<void> done;
  if (blocks >= state_.limits.large_write_blocks_min) {
    done = co_await write_large(request);
  } else {
    done = co_await write_in_pieces(request);
  }
  if (done) {
    ++state_.writes;
    state_.user_bytes_written += request.data.size();
  }
  co_return done;
}

Task<Result<void>> StoreWrite::write_in_pieces(WriteRequest request) {
  const auto blocks = static_cast<std::uint32_t>(request.data.size() / kBlockBytes);
  for (std::uint32_t first = 0; first < blocks; first += kPieceBlocks) {
    const std::uint32_t count = std::min(kPieceBlocks, blocks - first);
    SARSEN_CO_TRY(co_await write_small(part_of(request, first, count)));
  }
  co_return Result<void>{};
}

Task<Result<void>> StoreWrite::write_small(WriteRequest request) {
  Lane& lane = state_.lane_of(request.object);
  JournalRecord record = record_of(request, lane, RecordKind::write);
  const BlockRange range{.first_block = record.first_block, .block_count = record.block_count};
  auto reserved = co_await reserve_homes(lane, request.object, range);
  if (!reserved) co_return fail(reserved.error());
  auto done = co_await append(std::move(record), request.data, *reserved);
  if (!done && *reserved != 0) {
    lane.allocator.unreserve(static_cast<std::uint64_t>(std::popcount(*reserved)));
  }
  co_return done;
}

// I-STORE-3. Gives a mask of the blocks that hold a reservation now. No wait between the decision
// and the caller's append.
Task<Result<std::uint64_t>> StoreWrite::reserve_homes(Lane& lane, ObjectKey object,
                                                      BlockRange range) {
  // A block whose newest version waits in the journal has its home, or the promise of one.
  const auto without_home = [&](bool look_at_leaves) {
    std::uint64_t mask = 0;
    for (std::uint32_t i = 0; i < range.block_count; ++i) {
      const std::uint32_t block = range.first_block + i;
      const auto pending = state_.overlay.find(object, block);
      if (pending && pending->kind == PendingKind::journal) continue;
      if (!pending && look_at_leaves) {
        const LeafPointer leaf = state_.leaves->find(
            {.object = object, .leaf = static_cast<std::uint16_t>(block / kLeafBlocks)});
        const auto home = leaf ? leaf->lookup(block % kLeafBlocks) : std::nullopt;
        if (home && !home->extent->shared && home->extent->compression() == nullptr) continue;
      }
      mask |= std::uint64_t{1} << i;
    }
    return mask;
  };
  const auto reserve = [&](std::uint64_t mask) {
    return lane.allocator.reserve(static_cast<std::uint64_t>(std::popcount(mask)), Purpose::write);
  };
  while (true) {
    if (const std::uint64_t mask = without_home(false); reserve(mask)) co_return mask;
    auto grown = co_await grow_lane(state_, lane);
    if (grown) continue;
    if (!is(grown.error(), StoreError::no_space)) co_return fail(grown.error());
    // Full: an overwrite in place needs no new home. Look closely.
    std::vector<LeafKey> keys;
    for (std::uint32_t block = range.first_block; block < range.first_block + range.block_count;
         ++block) {
      const LeafKey key{.object = object, .leaf = static_cast<std::uint16_t>(block / kLeafBlocks)};
      if (keys.empty() || keys.back() != key) keys.push_back(key);
    }
    auto leaves = co_await state_.leaves->get(std::move(keys));
    if (!leaves) co_return fail(leaves.error());
    if (const std::uint64_t mask = without_home(true); reserve(mask)) co_return mask;
    co_return fail(make_error(StoreError::no_space));
  }
}

Task<Result<void>> StoreWrite::write_large(WriteRequest request) {
  Lane& lane = state_.lane_of(request.object);
  const auto blocks = static_cast<std::uint32_t>(request.data.size() / kBlockBytes);
  auto runs = co_await allocate_extents(lane, blocks);
  if (!runs) {
    if (!is(runs.error(), StoreError::no_space)) co_return fail(runs.error());
    // No fresh extent: through the journal, so that overwrites work on a full device.
    co_return co_await write_in_pieces(request);
  }
  JournalRecord record = record_of(request, lane, RecordKind::write_extents);
  record.runs.assign(runs->begin(), runs->end());
  if (state_.env.faults.planted("store.record_before_extents")) {
    const auto appended = co_await append(record, {}, 0);
    if (!appended) co_return appended;
    co_return co_await write_extents(request.data, *runs);
  }
  // I-STORE-4
  if (auto written = co_await write_extents(request.data, *runs); !written) {
    // Nothing names them yet; after a failed device write they stay taken until the next start.
    if (!state_.failure) {
      for (const DeviceRun& run : *runs) lane.allocator.give_back(run);
    }
    co_return written;
  }
  co_return co_await append(std::move(record), {}, 0);
}

Task<Result<DeviceRuns>> StoreWrite::allocate_extents(Lane& lane, std::uint32_t blocks) {
  while (true) {
    auto runs = lane.allocator.allocate(blocks, std::nullopt, Purpose::write);
    if (runs) co_return *runs;
    SARSEN_CO_TRY(co_await grow_lane(state_, lane));
  }
}

// Writes to fresh blocks and makes the data durable. A failure leaves the device failed.
Task<Result<void>> StoreWrite::write_extents(std::span<const std::byte> data, DeviceRuns runs) {
  Buffer bounce;
  if (reinterpret_cast<std::uintptr_t>(data.data()) % kBlockBytes != 0) {
    auto buffer = state_.env.buffers.allocate(data.size());
    if (!buffer) co_return fail(buffer.error());
    bounce = *std::move(buffer);
    std::memcpy(bounce.data(), data.data(), data.size());
    data = bounce.span(0, data.size());
  }
  Result<void> done;
  std::size_t at = 0;
  for (const DeviceRun& run : runs) {
    const std::size_t bytes = std::size_t{run.blocks} * kBlockBytes;
    const ByteOffset offset(run.start.value * kBlockBytes);
    if (runs.size() == 1) {
      done = co_await state_.disk.write_durable(offset, data.subspan(at, bytes));
    } else {
      done = co_await state_.disk.write(offset, data.subspan(at, bytes));
    }
    if (!done) break;
    at += bytes;
  }
  if (done && runs.size() > 1 && state_.disk.info().volatile_cache) {
    done = co_await state_.disk.flush();
  }
  state_.home_bytes_written += data.size();
  if (!done) {
    state_.fail_writes(make_error(StoreError::device_failed, done.error().message()));
    co_return fail(*state_.failure);
  }
  co_return Result<void>{};
}

Task<Result<void>> StoreWrite::zero(ObjectKey object, BlockRange range, WriteStamp stamp) {
  if (state_.failure) co_return fail(*state_.failure);
  if (range.block_count == 0 || range.first_block > kBlocksPerObject ||
      range.block_count > kBlocksPerObject - range.first_block) {
    co_return fail(make_error(StoreError::bad_request, "zero: not a range of an object"));
  }
  if (range.block_count == kBlocksPerObject) co_return co_await remove(object, stamp);
  JournalRecord record;
  record.kind = RecordKind::zero;
  record.lane = state_.lane_of(object).id;
  record.object = object;
  record.first_block = range.first_block;
  record.block_count = range.block_count;
  record.stamp = stamp;
  co_return co_await append(std::move(record), {}, 0);
}

Task<Result<void>> StoreWrite::remove(ObjectKey object, WriteStamp stamp) {
  if (state_.failure) co_return fail(*state_.failure);
  JournalRecord record;
  record.kind = RecordKind::remove_object;
  record.lane = state_.lane_of(object).id;
  record.object = object;
  record.stamp = stamp;
  co_return co_await append(std::move(record), {}, 0);
}

// Assigns the sequence and appends, with nothing in between: the order of sequences in a lane is
// the order of its records in the stream.
Task<Result<void>> StoreWrite::append(JournalRecord record, std::span<const std::byte> data,
                                      std::uint64_t tag) {
  record.lane_sequence = state_.lanes[record.lane.value].issue();
  auto receipt = co_await state_.journal->append(std::move(record), data, tag);
  if (receipt) co_return Result<void>{};
  if (is(receipt.error(), StoreError::device_failed)) state_.fail_writes(receipt.error());
  co_return fail(receipt.error());
}

void StoreWrite::on_durable(JournalRecord record, const JournalReceipt& receipt,
                            std::uint64_t tag) {
  if (record.kind == RecordKind::stream_ends) return;
  RecoveredRecord durable;
  durable.record = std::move(record);
  durable.lsn = receipt.lsn;
  durable.generation = receipt.generation;
  durable.payload = receipt.payload;
  apply_record(state_, durable, tag);
  state_.note_evident(state_.journal->recorded_durable_upto());
  state_.unevident.push_back(
      {.lsn = durable.lsn, .lane = durable.record.lane, .sequence = durable.record.lane_sequence});
  state_.segments[receipt.generation].push_back(std::move(durable));
}

}  // namespace sarsen
