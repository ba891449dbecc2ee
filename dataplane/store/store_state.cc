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
  PendingBlock pending;
  pending.sequence = record.lane_sequence;
  switch (record.kind) {
    case RecordKind::write:
      for (std::uint32_t i = 0; i < record.block_count; ++i) {
        pending.kind = recovered.payload_lost ? PendingKind::lost : PendingKind::journal;
        pending.location = BlockIndex(recovered.payload.value + i);
        pending.checksum = record.checksums[i];
        pending.reserved = i < 64 && (reserved_mask >> i & 1) != 0;
        state.overlay.put(record.object, record.first_block + i, pending, drop);
      }
      break;
    case RecordKind::write_extents: {
      pending.kind = PendingKind::extent;
      std::uint32_t i = 0;
      for (const DeviceRun& run : record.runs) {
        for (std::uint32_t block = 0; block < run.blocks; ++block, ++i) {
          pending.location = BlockIndex(run.start.value + block);
          pending.checksum = record.checksums[i];
          state.overlay.put(record.object, record.first_block + i, pending, drop);
        }
      }
      break;
    }
    case RecordKind::zero:
      pending.kind = PendingKind::zero;
      for (std::uint32_t i = 0; i < record.block_count; ++i) {
        state.overlay.put(record.object, record.first_block + i, pending, drop);
      }
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
