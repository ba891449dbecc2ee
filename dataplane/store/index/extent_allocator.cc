#include "dataplane/store/index/extent_allocator.h"

#include <algorithm>
#include <string>
#include <utility>

#include "dataplane/base/assert.h"
#include "dataplane/store/index/error.h"

namespace sarsen {
namespace {

// Chunks whose counters are read in search of a run of more than one block.
constexpr std::uint32_t kChunksLookedAtMax = 1024;

std::string text(DeviceRun run) {
  return std::to_string(run.blocks) + " blocks at " + std::to_string(run.start.value);
}

Unexpected refused(IndexError code, DeviceRun run) {
  return fail(make_error(code, text(run)));
}

}  // namespace

struct ExtentAllocator::Chunk {
  Chunk(ChunkIndex chunk, BlockIndex start, std::uint32_t count)
      : index(chunk),
        first_block(start),
        blocks(count),
        busy(count),
        owned(count),
        free(count),
        run_max(count) {}

  ChunkIndex index;
  BlockIndex first_block;
  std::uint32_t blocks;
  BlockBitmap busy;         // not free
  BlockBitmap owned;        // what changed_chunks() stores
  BlockBitmap quarantined;  // of size 0 while there is none
  std::uint32_t free;
  std::uint32_t quarantined_count = 0;
  std::uint32_t run_max;     // no run of free blocks is longer
  std::uint32_t cursor = 0;  // where the next search begins
  bool changed = false;

  std::uint64_t end() const { return first_block.value + blocks; }
  bool any_quarantined(std::uint32_t from, std::uint32_t count) const {
    return quarantined_count > 0 && quarantined.any(from, count);
  }
};

ExtentAllocator::ExtentAllocator(LaneId lane, AllocatorOptions options)
    : lane_(lane), options_(options) {}
ExtentAllocator::ExtentAllocator(ExtentAllocator&&) noexcept = default;
ExtentAllocator& ExtentAllocator::operator=(ExtentAllocator&&) noexcept = default;
ExtentAllocator::~ExtentAllocator() = default;

// --- chunks ---

void ExtentAllocator::add_chunk(ChunkIndex chunk, BlockIndex first_block, std::uint32_t blocks) {
  insert(Chunk(chunk, first_block, blocks));
}

Result<void> ExtentAllocator::load(ChunkIndex chunk, BlockIndex first_block, std::uint32_t blocks,
                                   std::span<const std::byte> stored_bitmap) {
  auto used = decode_chunk_bitmap(stored_bitmap, encode_chunk_key(lane_, chunk), blocks);
  if (!used) return fail(std::move(used).error());
  Chunk loaded(chunk, first_block, blocks);
  loaded.free = loaded.run_max = blocks - used->count();
  loaded.busy = *used;
  loaded.owned = std::move(*used);
  insert(std::move(loaded));
  return {};
}

void ExtentAllocator::insert(Chunk chunk) {
  SARSEN_ASSERT(chunk.blocks > 0 && chunk.end() <= kDeviceBlocksMax, "a chunk is on the device");
  const auto after = std::upper_bound(
      chunks_.begin(), chunks_.end(), chunk.first_block,
      [](BlockIndex block, const Chunk& other) { return block < other.first_block; });
  SARSEN_ASSERT(after == chunks_.end() || chunk.end() <= after->first_block.value,
                "a chunk overlaps the next one");
  SARSEN_ASSERT(after == chunks_.begin() || (after - 1)->end() <= chunk.first_block.value,
                "a chunk overlaps the one before");
  account_.total += chunk.blocks;
  account_.free += chunk.free;
  account_.owned += chunk.blocks - chunk.free;
  chunks_.insert(after, std::move(chunk));
  chunks_moved();
}

void ExtentAllocator::chunks_moved() {
  full_ = BlockBitmap(static_cast<std::uint32_t>(chunks_.size()));
  for (std::uint32_t slot = 0; slot < full_.size(); ++slot) {
    if (chunks_[slot].free == 0) full_.set(slot, 1);
  }
  cursor_slot_ = 0;
}

bool ExtentAllocator::wants_chunk() const {
  return available(Purpose::write) < options_.low_water_blocks;
}

std::vector<ChunkIndex> ExtentAllocator::empty_chunks() const {
  std::vector<ChunkIndex> empty;
  for (const Chunk& chunk : chunks_) {
    if (chunk.free == chunk.blocks) empty.push_back(chunk.index);
  }
  return empty;
}

bool ExtentAllocator::remove_chunk(ChunkIndex chunk) {
  const auto slot = slot_of(chunk);
  SARSEN_ASSERT(slot.has_value(), "the lane has the chunk that it gives back");
  const std::uint32_t blocks = chunks_[*slot].blocks;
  if (chunks_[*slot].free != blocks || account_.free - blocks < account_.reserved) return false;
  account_.total -= blocks;
  account_.free -= blocks;
  chunks_.erase(chunks_.begin() + *slot);
  chunks_moved();
  return true;
}

std::optional<std::uint32_t> ExtentAllocator::slot_of(BlockIndex block) const {
  const auto after =
      std::upper_bound(chunks_.begin(), chunks_.end(), block,
                       [](BlockIndex a, const Chunk& chunk) { return a < chunk.first_block; });
  if (after == chunks_.begin() || block.value >= (after - 1)->end()) return std::nullopt;
  return static_cast<std::uint32_t>(after - 1 - chunks_.begin());
}

std::optional<std::uint32_t> ExtentAllocator::slot_of(ChunkIndex chunk) const {
  const auto found = std::find_if(chunks_.begin(), chunks_.end(),
                                  [&](const Chunk& other) { return other.index == chunk; });
  if (found == chunks_.end()) return std::nullopt;
  return static_cast<std::uint32_t>(found - chunks_.begin());
}

// Nothing when a block of the run is in no chunk. Chunks may be neighbours on the device, so that a
// run that a leaf merged may be in two.
std::optional<ExtentAllocator::Pieces> ExtentAllocator::pieces_of(DeviceRun run) const {
  if (run.blocks == 0 || run.start.value > kDeviceBlocksMax - run.blocks) return std::nullopt;
  Pieces pieces;
  for (std::uint64_t at = run.start.value; at < run.end().value;) {
    const auto slot = slot_of(BlockIndex(at));
    if (!slot) return std::nullopt;
    const Chunk& chunk = chunks_[*slot];
    const std::uint64_t end = std::min(run.end().value, chunk.end());
    pieces.push_back({*slot, static_cast<std::uint32_t>(at - chunk.first_block.value),
                      static_cast<std::uint32_t>(end - at)});
    at = end;
  }
  return pieces;
}

// --- promises ---

std::uint64_t ExtentAllocator::reserve_pool() const {
  return (account_.total * options_.reserve_permille + 999) / 1000;
}

std::uint64_t ExtentAllocator::available(Purpose purpose) const {
  const std::uint64_t kept = account_.reserved + (purpose == Purpose::write ? reserve_pool() : 0);
  return account_.free - std::min(account_.free, kept);
}

bool ExtentAllocator::reserve(std::uint64_t blocks, Purpose purpose) {
  if (blocks > available(purpose)) return false;
  account_.reserved += blocks;
  return true;
}

void ExtentAllocator::unreserve(std::uint64_t blocks) {
  SARSEN_ASSERT(blocks <= account_.reserved, "I-ALLOC-2: only what was promised is given up");
  account_.reserved -= blocks;
}

bool ExtentAllocator::fits_after_release(std::uint64_t blocks, Purpose purpose) const {
  const std::uint64_t kept = account_.reserved + (purpose == Purpose::write ? reserve_pool() : 0);
  const std::uint64_t free = account_.free + account_.quarantined;
  return blocks <= free - std::min(free, kept);
}

// --- allocating ---

DeviceRuns ExtentAllocator::allocate_reserved(std::uint32_t blocks,
                                              std::optional<BlockIndex> hint) {
  SARSEN_ASSERT(blocks > 0, "an allocation has a length");
  unreserve(blocks);
  DeviceRuns runs;
  std::uint32_t want = blocks;
  for (std::uint32_t remaining = blocks; remaining > 0;) {
    want = std::min(want, remaining);
    const auto found = find(want, hint);
    if (!found) {
      SARSEN_ASSERT(want > 1, "I-ALLOC-2: what is promised is free");
      want = (want + 1) / 2;
      continue;
    }
    Chunk& chunk = chunks_[found->slot];
    const std::uint32_t end_max = std::min(chunk.blocks - found->start, remaining) + found->start;
    const std::uint32_t end = chunk.busy.next_set(found->start + want, end_max);
    const DeviceRun run{BlockIndex(chunk.first_block.value + found->start), end - found->start};
    take(found->slot, found->start, run.blocks);
    runs.push_back(run);
    remaining -= run.blocks;
    hint = run.end();
  }
  return runs;
}

Result<DeviceRuns> ExtentAllocator::allocate(std::uint32_t blocks, std::optional<BlockIndex> hint,
                                             Purpose purpose) {
  if (!reserve(blocks, purpose)) {
    return fail(make_error(IndexError::no_space, "need " + std::to_string(blocks) + ", have " +
                                                     std::to_string(available(purpose))));
  }
  return allocate_reserved(blocks, hint);
}

// `want` free blocks in one run: near the hint, else where the last search ended. Nothing when a
// bounded search found none; a search for one block is not bounded.
std::optional<ExtentAllocator::Found> ExtentAllocator::find(std::uint32_t want,
                                                            std::optional<BlockIndex> hint) {
  if (const auto slot = hint ? slot_of(*hint) : std::nullopt) {
    const std::uint64_t from = hint->value - chunks_[*slot].first_block.value;
    if (const auto found = scan(*slot, static_cast<std::uint32_t>(from), want)) return found;
  }
  std::uint32_t looked_at = 0;
  std::uint32_t scanned = 0;
  const std::pair<std::uint32_t, std::uint32_t> ranges[] = {{cursor_slot_, full_.size()},
                                                            {0, cursor_slot_}};
  for (const auto& [first, end] : ranges) {
    for (std::uint32_t slot = full_.next_clear(first, end); slot < end;
         slot = full_.next_clear(slot + 1, end)) {
      const Chunk& chunk = chunks_[slot];
      if (want > 1 && ++looked_at > kChunksLookedAtMax) return std::nullopt;
      if (chunk.run_max < want) continue;
      if (want > 1 && ++scanned > options_.chunks_scanned_max) return std::nullopt;
      if (const auto found = scan(slot, chunk.cursor, want)) {
        cursor_slot_ = slot;
        return found;
      }
    }
  }
  return std::nullopt;
}

// Looks through one chunk, from `from` to its end and then from its start.
std::optional<ExtentAllocator::Found> ExtentAllocator::scan(std::uint32_t slot, std::uint32_t from,
                                                            std::uint32_t want) {
  Chunk& chunk = chunks_[slot];
  if (chunk.run_max < want) return std::nullopt;
  auto start = chunk.busy.find_clear_run(from, chunk.blocks, want);
  if (!start) {
    const std::uint32_t wrapped_end = std::min(chunk.blocks, from + want - 1);
    start = chunk.busy.find_clear_run(0, wrapped_end, want);
  }
  if (!start) {
    chunk.run_max = want - 1;
    return std::nullopt;
  }
  return Found{slot, *start};
}

void ExtentAllocator::take(std::uint32_t slot, std::uint32_t start, std::uint32_t blocks) {
  Chunk& chunk = chunks_[slot];
  SARSEN_ASSERT(!chunk.busy.any(start, blocks), "I-ALLOC-1: only free blocks are taken");
  chunk.busy.set(start, blocks);
  chunk.free -= blocks;
  chunk.run_max = std::min(chunk.run_max, chunk.free);
  chunk.cursor = start + blocks == chunk.blocks ? 0 : start + blocks;
  if (chunk.free == 0) full_.set(slot, 1);
  account_.free -= blocks;
  account_.pending += blocks;
}

Result<void> ExtentAllocator::mark_used(DeviceRun run) {
  const auto pieces = pieces_of(run);
  if (!pieces) return refused(IndexError::outside_lane, run);
  for (const Piece& piece : *pieces) {
    if (chunks_[piece.slot].busy.any(piece.start, piece.blocks)) {
      return refused(IndexError::double_owner, run);
    }
  }
  if (run.blocks > account_.free - account_.reserved) return refused(IndexError::no_space, run);
  for (const Piece& piece : *pieces) take(piece.slot, piece.start, piece.blocks);
  return {};
}

bool ExtentAllocator::all_pending(const Pieces& pieces) const {
  return std::all_of(pieces.begin(), pieces.end(), [&](const Piece& piece) {
    const Chunk& chunk = chunks_[piece.slot];
    return chunk.busy.all(piece.start, piece.blocks) &&
           !chunk.owned.any(piece.start, piece.blocks) &&
           !chunk.any_quarantined(piece.start, piece.blocks);
  });
}

void ExtentAllocator::commit_allocation(DeviceRun run) {
  const auto pieces = pieces_of(run);
  SARSEN_ASSERT(pieces && all_pending(*pieces), "I-ALLOC-1: only pending blocks become owned");
  for (const Piece& piece : *pieces) {
    Chunk& chunk = chunks_[piece.slot];
    chunk.owned.set(piece.start, piece.blocks);
    chunk.changed = true;
  }
  account_.pending -= run.blocks;
  account_.owned += run.blocks;
}

void ExtentAllocator::give_back(DeviceRun run) {
  const auto pieces = pieces_of(run);
  SARSEN_ASSERT(pieces && all_pending(*pieces), "I-ALLOC-1: only pending blocks are given back");
  for (const Piece& piece : *pieces) make_free(piece.slot, piece.start, piece.blocks);
  account_.pending -= run.blocks;
}

// --- freeing ---

bool ExtentAllocator::owns(DeviceRun run) const {
  const auto pieces = pieces_of(run);
  return pieces && std::ranges::all_of(*pieces, [this](const Piece& piece) {
           return chunks_[piece.slot].owned.all(piece.start, piece.blocks);
         });
}

Result<void> ExtentAllocator::free_to_quarantine(DeviceRun run, CommitTicket ticket) {
  SARSEN_ASSERT(ticket >= newest_ticket_ && ticket > released_upto_,
                "I-ALLOC-3: a ticket is of a commit still to come, and tickets never fall");
  const auto pieces = pieces_of(run);
  if (!pieces) return refused(IndexError::outside_lane, run);
  for (const Piece& piece : *pieces) {
    const Chunk& chunk = chunks_[piece.slot];
    if (!chunk.busy.all(piece.start, piece.blocks) ||
        chunk.any_quarantined(piece.start, piece.blocks)) {
      return refused(IndexError::not_owned, run);
    }
  }
  for (const Piece& piece : *pieces) {
    Chunk& chunk = chunks_[piece.slot];
    const std::uint32_t owned = chunk.owned.count(piece.start, piece.blocks);
    if (owned > 0) {
      chunk.owned.clear(piece.start, piece.blocks);
      chunk.changed = true;
    }
    if (chunk.quarantined_count == 0) chunk.quarantined = BlockBitmap(chunk.blocks);
    chunk.quarantined.set(piece.start, piece.blocks);
    chunk.quarantined_count += piece.blocks;
    account_.owned -= owned;
    account_.pending -= piece.blocks - owned;
  }
  account_.quarantined += run.blocks;
  newest_ticket_ = ticket;
  quarantine_.push_back({ticket, run});
  return {};
}

std::uint64_t ExtentAllocator::release_quarantine(CommitTicket upto) {
  released_upto_ = std::max(released_upto_, upto);
  std::uint64_t released = 0;
  for (; !quarantine_.empty() && quarantine_.front().ticket <= upto; quarantine_.pop_front()) {
    const DeviceRun run = quarantine_.front().run;
    const auto pieces = pieces_of(run);
    SARSEN_ASSERT(pieces.has_value(), "I-ALLOC-1: a chunk with quarantined blocks stays");
    for (const Piece& piece : *pieces) {
      Chunk& chunk = chunks_[piece.slot];
      chunk.quarantined.clear(piece.start, piece.blocks);
      chunk.quarantined_count -= piece.blocks;
      if (chunk.quarantined_count == 0) chunk.quarantined = BlockBitmap();
      make_free(piece.slot, piece.start, piece.blocks);
    }
    account_.quarantined -= run.blocks;
    released += run.blocks;
  }
  return released;
}

void ExtentAllocator::make_free(std::uint32_t slot, std::uint32_t start, std::uint32_t blocks) {
  Chunk& chunk = chunks_[slot];
  chunk.busy.clear(start, blocks);
  chunk.free += blocks;
  // At worst the blocks join two of the longest runs.
  const std::uint64_t joined = 2 * std::uint64_t{chunk.run_max} + blocks;
  chunk.run_max = static_cast<std::uint32_t>(std::min<std::uint64_t>(joined, chunk.free));
  full_.clear(slot, 1);
  account_.free += blocks;
}

// --- persistence and accounts ---

std::vector<ChangedChunk> ExtentAllocator::changed_chunks() {
  std::vector<ChangedChunk> changed;
  for (Chunk& chunk : chunks_) {
    if (!std::exchange(chunk.changed, false)) continue;
    changed.push_back(
        {chunk.index, encode_chunk_bitmap(chunk.owned, encode_chunk_key(lane_, chunk.index))});
  }
  return changed;
}

void ExtentAllocator::keep_changed(ChunkIndex chunk) {
  if (const auto slot = slot_of(chunk)) chunks_[*slot].changed = true;
}

AllocatorAccount ExtentAllocator::account() const {
  AllocatorAccount account = account_;
  account.reserve_pool = std::min(reserve_pool(), account_.free - account_.reserved);
  return account;
}

Result<void> ExtentAllocator::validate() const {
  const auto broken = [](const std::string& what) {
    return fail(make_error(IndexError::accounting_broken, what));
  };
  AllocatorAccount counted;
  for (std::uint32_t slot = 0; slot < chunks_.size(); ++slot) {
    const Chunk& chunk = chunks_[slot];
    const std::string name = "chunk " + std::to_string(chunk.index.value);
    BlockBitmap left = chunk.busy;  // what is in no state yet; pending in the end
    const auto count_state = [&](const BlockBitmap& state) {
      for (std::uint32_t at = state.next_set(0, state.size()); at < state.size();
           at = state.next_set(at + 1, state.size())) {
        if (!left.test(at)) return false;
        left.clear(at, 1);
      }
      return true;
    };
    if (!count_state(chunk.owned) || !count_state(chunk.quarantined)) {
      return broken(name + ": a block is in two states");
    }
    if (chunk.blocks - chunk.busy.count() != chunk.free) return broken(name + ": free");
    if (chunk.quarantined.count() != chunk.quarantined_count) return broken(name + ": quarantined");
    if ((chunk.free == 0) != full_.test(slot)) return broken(name + ": full");
    const std::uint32_t longer = chunk.run_max + 1;
    if (chunk.busy.find_clear_run(0, chunk.blocks, longer)) return broken(name + ": run_max");
    counted.total += chunk.blocks;
    counted.free += chunk.free;
    counted.pending += left.count();
    counted.owned += chunk.owned.count();
    counted.quarantined += chunk.quarantined_count;
  }
  counted.reserved = account_.reserved;
  if (counted != account_) return broken("the sums of the lane");
  if (account_.reserved > account_.free) return broken("more is promised than is free");
  std::uint64_t waiting = 0;
  for (const Quarantined& entry : quarantine_) waiting += entry.run.blocks;
  if (waiting != account_.quarantined) return broken("the quarantine");
  return {};
}

}  // namespace sarsen
