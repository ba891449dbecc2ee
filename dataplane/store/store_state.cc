#include "dataplane/store/store_state.h"

#include <cstdio>

namespace sarsen {

std::string applied_key(LaneId lane) {
  char text[32];
  std::snprintf(text, sizeof(text), "lane/%04u/applied", lane.value);
  return text;
}

void apply_record(StoreState& state, const RecoveredRecord& recovered,
                  std::uint64_t reserved_mask) {
  const JournalRecord& record = recovered.record;
  Lane& lane = state.lanes[record.lane.value];
  OverlayDrop drop;
  PendingRun pending;
  pending.sequence = record.lane_sequence;
  // `count` blocks of the record from its block `first` on; those that have data, at `location`.
  const auto put = [&](std::uint32_t first, std::uint32_t count, BlockIndex location) {
    each_leaf_part(record.first_block + first, count, [&](std::uint32_t block, std::uint32_t n) {
      const std::uint32_t i = block - record.first_block;
      pending.first_block = block;
      pending.block_count = n;
      pending.location = BlockIndex(location.value + i - first);
      if (!record.checksums.empty()) pending.checksums = std::span(record.checksums).subspan(i, n);
      pending.reserved = 0;
      if (i < 64) {
        const std::uint64_t mask = reserved_mask >> i;
        pending.reserved = static_cast<std::uint32_t>(mask & ((std::uint64_t{1} << n) - 1));
      }
      state.overlay.put(record.object, pending, drop);
    });
  };
  switch (record.kind) {
    case RecordKind::write:
      pending.kind = recovered.payload_lost ? PendingKind::lost : PendingKind::journal;
      put(0, record.block_count, recovered.payload);
      break;
    case RecordKind::write_extents: {
      pending.kind = PendingKind::extent;
      std::uint32_t first = 0;
      for (const DeviceRun& run : record.runs) {
        put(first, run.blocks, run.start);
        first += run.blocks;
      }
      break;
    }
    case RecordKind::zero:
      pending.kind = PendingKind::zero;
      if (record.block_count > 0) put(0, record.block_count, {});
      break;
    case RecordKind::remove_object:
      state.overlay.remove_object(record.object, record.lane_sequence, drop);
      break;
    case RecordKind::share_object:
    case RecordKind::stream_ends: break;
  }
  state.settle(lane, drop);
}

Task<Result<void>> grow_lane(StoreState& state, Lane& lane) {
  auto turn = co_await state.growing.acquire(1);
  if (!turn) co_return fail(turn.error());
  DeviceTable& table = *state.table;
  const ChunkOwner owner = ChunkOwner::lane(lane.id);
  auto granted =
      co_await state.env.blocking.run([&table, owner] { return table.grant_chunk(owner); });
  state.chunks_are_out = !granted.has_value();
  if (!granted) {
    if (granted.error().error_class() == ErrorClass::unavailable) {
      co_return fail(make_error(StoreError::no_space));
    }
    state.fail_writes(make_error(StoreError::device_failed, granted.error().message()));
    co_return fail(*state.failure);
  }
  const StoreGeometry& geometry = state.superblock.geometry;
  const std::uint64_t start = geometry.chunks_start().value + granted->value * geometry.chunk_bytes;
  lane.allocator.add_chunk(*granted, BlockIndex(start / kBlockBytes), geometry.blocks_per_chunk());
  co_return Result<void>{};
}

}  // namespace sarsen
