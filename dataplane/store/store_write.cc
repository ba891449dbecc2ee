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
  auto done = co_await try_write(request);
  // Space that was freed is reusable only after a checkpoint: make one rather than refuse.
  if (!done && is(done.error(), StoreError::no_space) && space_is_on_its_way() && reclaim_) {
    SARSEN_CO_TRY(co_await reclaim_());
    done = co_await try_write(request);
  }
  if (done) {
    ++state_.writes;
    state_.user_bytes_written += request.data.size();
  }
  co_return done;
}

// What most writes are is done here and not in a coroutine of its own: one record, whose homes can
// be promised at once.
Task<Result<void>> StoreWrite::try_write(WriteRequest request) {
  const auto blocks = static_cast<std::uint32_t>(request.data.size() / kBlockBytes);
  if (blocks >= state_.limits.large_write_blocks_min) co_return co_await write_large(request);
  Lane& lane = state_.lane_of(request.object);
  const BlockRange range{.first_block = request.first_block, .block_count = blocks};
  std::optional<std::uint64_t> mask;
  if (blocks <= kPieceBlocks) mask = reserve_at_once(lane, request.object, range, false);
  if (!mask) co_return co_await write_in_pieces(request);
  auto done = co_await append(record_of(request, lane, RecordKind::write), request.data, *mask);
  if (!done) lane.allocator.unreserve(static_cast<std::uint64_t>(std::popcount(*mask)));
  co_return done;
}

bool StoreWrite::space_is_on_its_way() const {
  return std::any_of(state_.lanes.begin(), state_.lanes.end(), [](const Lane& lane) {
    return !lane.superseded.empty() || lane.allocator.account().quarantined > 0;
  });
}

// Each piece is one record. All homes are promised before the first piece is appended: no_space
// means that nothing was written.
Task<Result<void>> StoreWrite::write_in_pieces(WriteRequest request) {
  Lane& lane = state_.lane_of(request.object);
  const auto blocks = static_cast<std::uint32_t>(request.data.size() / kBlockBytes);
  std::vector<std::uint64_t> masks;
  const auto give_back = [&](std::size_t from) {
    for (std::size_t i = from; i < masks.size(); ++i) {
      lane.allocator.unreserve(static_cast<std::uint64_t>(std::popcount(masks[i])));
    }
  };
  for (std::uint32_t first = 0; first < blocks; first += kPieceBlocks) {
    const BlockRange range{.first_block = request.first_block + first,
                           .block_count = std::min(kPieceBlocks, blocks - first)};
    auto mask = co_await reserve_homes(lane, request.object, range);
    if (!mask) {
      give_back(0);
      co_return fail(mask.error());
    }
    masks.push_back(*mask);
  }
  for (std::size_t i = 0; i < masks.size(); ++i) {
    const auto first = static_cast<std::uint32_t>(i) * kPieceBlocks;
    const WriteRequest piece = part_of(request, first, std::min(kPieceBlocks, blocks - first));
    auto done = co_await append(record_of(piece, lane, RecordKind::write), piece.data, masks[i]);
    if (!done) {
      give_back(i);
      co_return done;
    }
  }
  co_return Result<void>{};
}

// The blocks that need a reservation: one whose newest version waits in the journal has its home,
// or the promise of one.
std::uint64_t StoreWrite::blocks_without_home(const ObjectKey& object, BlockRange range,
                                              bool look_at_leaves) const {
  std::uint64_t mask = 0;
  const auto has_home = [&](std::uint32_t block) {
    const LeafPointer leaf = state_.leaves->find(
        {.object = object, .leaf = static_cast<std::uint16_t>(block / kLeafBlocks)});
    const auto home = leaf ? leaf->lookup(block % kLeafBlocks) : std::nullopt;
    return home && !home->extent->shared && home->extent->compression() == nullptr;
  };
  each_leaf_part(range.first_block, range.block_count,
                 [&](std::uint32_t first, std::uint32_t count) {
                   for (const PendingPiece& piece : state_.overlay.look(object, first, count)) {
                     if (piece.pending && piece.kind == PendingKind::journal) continue;
                     for (std::uint32_t i = 0; i < piece.block_count; ++i) {
                       const std::uint32_t block = piece.first_block + i;
                       if (!piece.pending && look_at_leaves && has_home(block)) continue;
                       mask |= std::uint64_t{1} << (block - range.first_block);
                     }
                   }
                 });
  return mask;
}

// I-STORE-3. The blocks that hold a reservation now; nothing when that needs a chunk, or a closer
// look. No wait between the decision and the caller's append.
std::optional<std::uint64_t> StoreWrite::reserve_at_once(Lane& lane, const ObjectKey& object,
                                                         BlockRange range, bool look_at_leaves) {
  const std::uint64_t mask = blocks_without_home(object, range, look_at_leaves);
  const auto blocks = static_cast<std::uint64_t>(std::popcount(mask));
  if (!lane.allocator.reserve(blocks, Purpose::write)) return std::nullopt;
  return mask;
}

Task<Result<std::uint64_t>> StoreWrite::reserve_homes(Lane& lane, ObjectKey object,
                                                      BlockRange range) {
  while (true) {
    if (const auto mask = reserve_at_once(lane, object, range, false)) co_return *mask;
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
    if (const auto mask = reserve_at_once(lane, object, range, true)) co_return *mask;
    co_return fail(make_error(StoreError::no_space));
  }
}

// Whether a batch and a checkpoint may free that much: at best, every pending extent replaces one.
bool StoreWrite::may_come_back(const Lane& lane, std::uint32_t blocks) {
  const AllocatorAccount account = lane.allocator.account();
  return account.pending + account.quarantined >= blocks;
}

Task<Result<void>> StoreWrite::write_large(WriteRequest request) {
  Lane& lane = state_.lane_of(request.object);
  const auto blocks = static_cast<std::uint32_t>(request.data.size() / kBlockBytes);
  auto runs = co_await allocate_extents(lane, blocks);
  if (!runs && is(runs.error(), StoreError::no_space) && reclaim_ && may_come_back(lane, blocks)) {
    // What earlier writes replaced is only waiting for a batch and a checkpoint.
    SARSEN_CO_TRY(co_await reclaim_());
    runs = co_await allocate_extents(lane, blocks);
  }
  if (!runs) {
    if (!is(runs.error(), StoreError::no_space)) co_return fail(runs.error());
    // No fresh extent: through the journal, so that overwrites work on a full device.
    co_return co_await write_in_pieces(request);
  }
  state_.look_at_space(lane);
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

Task<Result<void>> StoreWrite::write_run(DeviceRun run, std::span<const std::byte> data) {
  co_return co_await state_.disk.write_durable(ByteOffset(run.start.value * kBlockBytes), data);
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
  std::vector<Task<Result<void>>> tasks;
  std::size_t at = 0;
  for (const DeviceRun& run : runs) {
    const std::size_t bytes = std::size_t{run.blocks} * kBlockBytes;
    tasks.push_back(write_run(run, data.subspan(at, bytes)));
    at += bytes;
  }
  const auto done = first_error(co_await when_all(state_.env.executor, std::move(tasks)));
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

// Data goes through the journal whatever its first way was, with the checksums that it had: data
// that rotted meanwhile stays corrupt.
Task<Result<std::vector<StoreWrite::Again>>> StoreWrite::read_again(RecoveredRecord recovered) {
  const JournalRecord& old = recovered.record;
  std::vector<Again> pieces;
  auto sources = old.runs;
  if (old.kind == RecordKind::write) {
    sources = {{.start = recovered.payload, .blocks = old.block_count}};
  }
  if (sources.empty()) {
    pieces.push_back({.record = old, .data = {}, .bytes = 0});
    co_return pieces;
  }
  std::uint32_t first = 0;  // block of the record
  for (const DeviceRun& run : sources) {
    for (std::uint32_t at = 0; at < run.blocks;) {
      const std::uint32_t blocks = std::min(kPieceBlocks, run.blocks - at);
      const std::size_t bytes = std::size_t{blocks} * kBlockBytes;
      auto data = state_.env.buffers.allocate(bytes);
      if (!data) co_return fail(data.error());
      auto read = co_await state_.disk.read(ByteOffset((run.start.value + at) * kBlockBytes),
                                            data->span(0, bytes));
      if (!read && is(read.error(), RuntimeError::device_gone)) co_return fail(read.error());
      // Unreadable: the checksums say so to whoever reads it next.
      if (!read) std::memset(data->data(), 0, bytes);
      JournalRecord piece = old;
      piece.kind = RecordKind::write;
      piece.runs.clear();
      piece.first_block = old.first_block + first;
      piece.block_count = blocks;
      piece.checksums.assign(old.checksums.begin() + first, old.checksums.begin() + first + blocks);
      pieces.push_back({.record = std::move(piece), .data = *std::move(data), .bytes = bytes});
      at += blocks;
      first += blocks;
    }
  }
  co_return pieces;
}

Task<Result<void>> StoreWrite::write_again(Again piece) {
  Lane& lane = state_.lanes[piece.record.lane.value];
  std::uint64_t mask = 0;
  for (std::uint32_t i = 0; i < piece.record.block_count && piece.bytes > 0; ++i) {
    if (lane.allocator.reserve(1, Purpose::destage)) mask |= std::uint64_t{1} << i;
  }
  const auto data = piece.bytes > 0 ? piece.data.span(0, piece.bytes) : std::span<std::byte>();
  co_return co_await append(std::move(piece.record), data, mask);
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
  // The last group of a closed segment may be what a destager of a full journal waits for.
  if (state_.pool->starved() || state_.space_is_wanted) state_.destage_cue.notify_all();
}

}  // namespace sarsen
