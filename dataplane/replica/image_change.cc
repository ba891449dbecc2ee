// The changes of ImageService: from the wire to the store.
#include <algorithm>
#include <cstring>
#include <utility>

#include "dataplane/base/assert.h"
#include "dataplane/base/crc32c.h"
#include "dataplane/replica/image_service.h"
#include "dataplane/store/error.h"
#include "dataplane/wire/error.h"

namespace sarsen {
namespace {

using wire::RemoteError;

// Zeros that are to take space are written in pieces of this many blocks.
constexpr std::uint32_t kZeroBlocksMax = 64;

bool whole_blocks(wire::Range range) {
  return range.offset % kBlockBytes == 0 && range.length % kBlockBytes == 0;
}

WriteStamp stamp_of(const wire::Origin& origin, const wire::Changed& place) {
  return {.pg_epoch = place.epoch,
          .pg_sequence = place.sequence,
          .holder = origin.attachment.holder.value,
          .attach_epoch = origin.attachment.epoch.value,
          .session = origin.attachment.session.value,
          .operation_id = origin.operation.value,
          .first_unacknowledged = origin.first_unacknowledged.value,
          .snapshot_generation = origin.generation.snapshot.value};
}

}  // namespace

Task<Result<wire::Changed>> ImageService::handle(wire::CallContext context,
                                                 wire::WriteRequest request, Buffer data) {
  Change change{.kind = ChangeKind::write,
                .object = request.object,
                .range = request.range,
                .origin = request.origin};
  change.data = data.span(0, request.range.length);
  change.checksums = request.checksums;
  co_return co_await run_change(context, &change);
}

Task<Result<wire::Changed>> ImageService::handle(wire::CallContext context,
                                                 wire::TrimRequest request) {
  const Change change{.kind = ChangeKind::zero,
                      .object = request.object,
                      .range = request.range,
                      .origin = request.origin};
  co_return co_await run_change(context, &change);
}

Task<Result<wire::Changed>> ImageService::handle(wire::CallContext context,
                                                 wire::WriteZeroesRequest request) {
  const Change change{.kind = request.keep_allocated ? ChangeKind::write_zeroes : ChangeKind::zero,
                      .object = request.object,
                      .range = request.range,
                      .origin = request.origin};
  co_return co_await run_change(context, &change);
}

Task<Result<wire::Changed>> ImageService::handle(wire::CallContext context,
                                                 wire::RemoveRequest request) {
  // Of the image's last object only a part may exist; what does not exist is not removed.
  const Change change{.kind = ChangeKind::remove,
                      .object = request.object,
                      .range = {.offset = 0, .length = kBlockBytes},
                      .origin = request.origin};
  co_return co_await run_change(context, &change);
}

// ------------------------------------------------------------------------------------- the stops

Task<Result<wire::Changed>> ImageService::run_change(wire::CallContext context,
                                                     const Change* change) {
  const auto hold = operations_.hold();
  if (!hold) co_return fail(hold.error());
  const wire::Attachment& attachment = change->origin.attachment;
  SARSEN_CO_TRY(check_peer(context, attachment));
  Passage passage;
  passage.change = change;
  passage.question = {.pg = change->object.pg,
                      .image = change->object.image,
                      .attachment = attachment,
                      .branch = change->origin.generation.branch,
                      .object = change->object.object,
                      .range = change->range,
                      .changes = true};
  passage.session = {change->object.image, attachment.holder, attachment.epoch};
  auto admitted = co_await admit(passage.question, context.deadline);
  if (!admitted) co_return fail(admitted.error());
  passage.map = *std::move(admitted);
  passage.key = passage.map->find_image(change->object.image)->object_key(change->object.object);
  passage.group = group_of(change->object.pg);

  const auto entrance = passage.group->sessions.enter(passage.session, change->origin);
  if (!entrance) co_return fail(entrance.error());
  if (!entrance->first) {
    co_await entrance->operation->done.wait();
    co_return *entrance->operation->result;
  }
  auto result = co_await execute(&passage);
  if (!result) result = fail(to_remote(result.error()));
  passage.group->sessions.finish(passage.session, entrance->operation, result);
  co_return result;
}

// I-REPLICA-6. The first of those that want a block is served first.
Task<Result<wire::Changed>> ImageService::execute(Passage* passage) {
  const Change& change = *passage->change;
  const BlockRange blocks = change.kind == ChangeKind::remove
                                ? BlockRange{.first_block = 0, .block_count = kBlocksPerObject}
                                : blocks_of(change.range);
  RangeLock lock(locks_, passage->key, BlockIndex(blocks.first_block),
                 BlockIndex(blocks.first_block + blocks.block_count), LockMode::exclusive);
  const bool unlocked =
      !whole_blocks(change.range) && env_.faults.planted("replica.merge_without_lock");
  if (!unlocked) SARSEN_CO_TRY(co_await lock.acquire());
  // While we waited, the map may have moved on; commit() asks again.
  switch (change.kind) {
    case ChangeKind::write: co_return co_await write(passage);
    case ChangeKind::zero: co_return co_await zero(passage, false);
    case ChangeKind::write_zeroes: co_return co_await zero(passage, true);
    case ChangeKind::remove:
      co_return co_await commit(passage,
                                {.key = passage->key, .blocks = blocks, .whole_object = true});
  }
  co_return fail(wire::make_error(RemoteError::unsupported));
}

Result<void> ImageService::check_again(Passage& passage) const {
  if (env_.faults.planted("replica.skip_second_look")) return {};
  if (passage.map != map_.current()) {
    AdmissionAnswer answer = ask(*map_.current(), passage.question);
    if (answer.refusal) return fail(*std::move(answer.refusal));
    passage.map = map_.current();
  }
  return passage.group->sessions.check(passage.session, passage.question.attachment.session);
}

// I-REPLICA-5: no wait between check_again() and the store's decision about the order.
Task<Result<wire::Changed>> ImageService::commit(Passage* passage, StoreChange change) {
  SARSEN_CO_TRY(check_again(*passage));
  const MapEpoch epoch = passage->map->epoch;
  SARSEN_ASSERT(epoch >= settled_told_, "I-REPLICA-5: an older map lets nothing in any more");
  const wire::Changed place = passage->group->assign(passage->question.pg.epoch);
  ++acting_[epoch];
  const auto done = co_await apply(change, stamp_of(passage->change->origin, place));
  change_ended(epoch);
  if (!done) co_return fail(done.error());
  co_return place;
}

Task<Result<void>> ImageService::apply(StoreChange change, WriteStamp stamp) {
  if (change.whole_object) return store_.remove(change.key, stamp);
  if (change.data.empty()) return store_.zero(change.key, change.blocks, stamp);
  return store_.write({.object = change.key,
                       .first_block = change.blocks.first_block,
                       .data = change.data,
                       .checksums = change.checksums,
                       .stamp = stamp});
}

// ----------------------------------------------------------------------------------------- writes

Task<Result<wire::Changed>> ImageService::write(Passage* passage) {
  const Change& change = *passage->change;
  if (!whole_blocks(change.range)) co_return co_await write_merged(passage);
  co_return co_await commit(passage, {.key = passage->key,
                                      .blocks = blocks_of(change.range),
                                      .data = change.data,
                                      .checksums = change.checksums});
}

// Rule R8: the store gets whole blocks. The client's sums of whole blocks go on to the disk; those
// of its fragments are checked here, where the fragment becomes a part of a block.
Task<Result<wire::Changed>> ImageService::write_merged(Passage* passage) {
  const Change& change = *passage->change;
  const BlockRange blocks = blocks_of(change.range);
  const std::size_t bytes = std::size_t{blocks.block_count} * kBlockBytes;
  const std::uint32_t head = change.range.offset % kBlockBytes;
  const std::uint32_t tail = (change.range.offset + change.range.length) % kBlockBytes;
  auto merged = env_.buffers.allocate(bytes);
  if (!merged) co_return fail(merged.error());
  const std::uint32_t last = blocks.block_count - 1;
  const auto block_at = [&](std::uint32_t i) {
    return merged->span(std::size_t{i} * kBlockBytes, kBlockBytes);
  };
  if (head != 0 || (last == 0 && tail != 0)) {
    SARSEN_CO_TRY(co_await store_.read(passage->key, blocks.first_block, block_at(0)));
  }
  if (tail != 0 && last != 0) {
    SARSEN_CO_TRY(co_await store_.read(passage->key, blocks.first_block + last, block_at(last)));
  }
  std::memcpy(merged->data() + head, change.data.data(), change.data.size());

  std::vector<std::uint32_t> checksums(change.checksums.begin(), change.checksums.end());
  for (const std::uint32_t i : {0u, last}) {
    const std::uint32_t start = i == 0 ? head : 0;
    const std::uint32_t end = i == last && tail != 0 ? tail : kBlockBytes;
    const auto fragment = block_at(i).subspan(start, end - start);
    if (crc32c(fragment) != change.checksums[i]) {
      co_return fail(wire::make_error(RemoteError::bad_checksum, "data of a write"));
    }
    checksums[i] = crc32c(block_at(i));
  }
  co_return co_await commit(passage, {.key = passage->key,
                                      .blocks = blocks,
                                      .data = merged->span(0, bytes),
                                      .checksums = checksums});
}

// ------------------------------------------------------------------------------------------ zeros

// The parts of blocks at both ends, then the whole blocks between them. Each is a change of its
// own: blocks are what is atomic.
Task<Result<wire::Changed>> ImageService::zero(Passage* passage, bool keep_allocated) {
  const wire::Range range = passage->change->range;
  const std::uint32_t end = range.offset + range.length;
  const auto whole_start = static_cast<std::uint32_t>(round_up(range.offset, kBlockBytes));
  const auto whole_end = static_cast<std::uint32_t>(round_down(end, kBlockBytes));
  Result<wire::Changed> changed = passage->group->last();
  if (whole_start > whole_end) co_return co_await zero_part(passage, range, keep_allocated);
  if (range.offset < whole_start) {
    const wire::Range part{.offset = range.offset, .length = whole_start - range.offset};
    changed = co_await zero_part(passage, part, keep_allocated);
    if (!changed) co_return changed;
  }
  if (whole_end < end) {
    const wire::Range part{.offset = whole_end, .length = end - whole_end};
    changed = co_await zero_part(passage, part, keep_allocated);
    if (!changed) co_return changed;
  }
  if (whole_start == whole_end) co_return changed;
  const BlockRange blocks{.first_block = whole_start / kBlockBytes,
                          .block_count = (whole_end - whole_start) / kBlockBytes};
  if (keep_allocated) co_return co_await write_zero_blocks(passage, blocks);
  co_return co_await commit(passage, {.key = passage->key, .blocks = blocks});
}

// A part of one block.
Task<Result<wire::Changed>> ImageService::zero_part(Passage* passage, wire::Range part,
                                                    bool keep_allocated) {
  const BlockRange block{.first_block = part.offset / kBlockBytes, .block_count = 1};
  const auto runs = co_await store_.allocation(passage->key, block);
  if (!runs) co_return fail(runs.error());
  if (!runs->front().allocated && !keep_allocated) {
    // It reads as zeros already; but whoever was fenced meanwhile must not be told that all is
    // well.
    SARSEN_CO_TRY(check_again(*passage));
    co_return passage->group->last();
  }
  auto buffer = env_.buffers.allocate(kBlockBytes);
  if (!buffer) co_return fail(buffer.error());
  const auto bytes = buffer->span(0, kBlockBytes);
  SARSEN_CO_TRY(co_await store_.read(passage->key, block.first_block, bytes));
  std::memset(bytes.data() + part.offset % kBlockBytes, 0, part.length);
  const std::uint32_t checksum = crc32c(bytes);
  co_return co_await commit(
      passage,
      {.key = passage->key, .blocks = block, .data = bytes, .checksums = std::span(&checksum, 1)});
}

Task<Result<wire::Changed>> ImageService::write_zero_blocks(Passage* passage, BlockRange blocks) {
  const std::size_t bytes = std::size_t{std::min(blocks.block_count, kZeroBlocksMax)} * kBlockBytes;
  auto zeros = env_.buffers.allocate(bytes);
  if (!zeros) co_return fail(zeros.error());
  std::memset(zeros->data(), 0, bytes);
  const std::vector<std::uint32_t> checksums(kZeroBlocksMax, crc32c(zeros->span(0, kBlockBytes)));
  Result<wire::Changed> changed = passage->group->last();
  while (changed && blocks.block_count > 0) {
    const std::uint32_t count = std::min(blocks.block_count, kZeroBlocksMax);
    changed = co_await commit(passage,
                              {.key = passage->key,
                               .blocks = {.first_block = blocks.first_block, .block_count = count},
                               .data = zeros->span(0, std::size_t{count} * kBlockBytes),
                               .checksums = std::span(checksums).first(count)});
    blocks.first_block += count;
    blocks.block_count -= count;
  }
  co_return changed;
}

// ------------------------------------------------------------------------------------------ purge

// Whoever was let in by an older map holds its blocks until it ends; whoever waits for them is
// refused by the newer map when its turn comes.
Task<Result<void>> ImageService::purge_object(PurgeTask task, ObjectKey key,
                                              std::uint32_t first_block) {
  const auto hold = operations_.hold();
  if (!hold) co_return fail(hold.error());
  RangeLock lock(locks_, key, BlockIndex(first_block), BlockIndex(kBlocksPerObject),
                 LockMode::exclusive);
  SARSEN_CO_TRY(co_await lock.acquire());
  const auto map = map_.current();
  const ImageEntry* image = map->find_image(task.image);
  const PoolEntry* pool = map->find_pool(task.pg.pool);
  if (image == nullptr || !image->purging || image->purge_generation != task.generation ||
      pool == nullptr || task.pg.number.value >= pool->groups.size() ||
      !pool->groups[task.pg.number.value].has_primary(run_.osd)) {
    co_return fail(wire::make_error(RemoteError::stale_epoch, "of a purge"));
  }
  const wire::Changed place = group_of(task.pg)->assign(pool->groups[task.pg.number.value].epoch);
  const StoreChange change{
      .key = key,
      .blocks = {.first_block = first_block, .block_count = kBlocksPerObject - first_block},
      .whole_object = first_block == 0};
  ++acting_[map->epoch];
  auto done = co_await apply(change, {.pg_epoch = place.epoch, .pg_sequence = place.sequence});
  change_ended(map->epoch);
  co_return done;
}

}  // namespace sarsen
