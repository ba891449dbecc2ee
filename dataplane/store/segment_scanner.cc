#include "dataplane/store/segment_scanner.h"

#include <algorithm>

#include "dataplane/base/crc32c.h"
#include "dataplane/store/error.h"

namespace sarsen {
namespace {

// One read of the device brings this many blocks: 1 MiB, enough to stream at full speed.
constexpr std::uint32_t kWindowBlocks = 256;
constexpr int kReadAttempts = 5;

}  // namespace

SegmentScanner::SegmentScanner(Env& env, Disk& disk, const Superblock& superblock,
                               std::uint32_t segment)
    : env_(env),
      disk_(disk),
      superblock_(superblock),
      segment_(segment),
      segment_blocks_(static_cast<std::uint32_t>(superblock.geometry.segment_bytes / kBlockBytes)) {
}

Task<Result<void>> SegmentScanner::fill(std::uint32_t position, std::uint32_t blocks) {
  window_blocks_ = 0;
  if (window_.size() < std::size_t{blocks} * kBlockBytes) {
    auto buffer = env_.buffers.allocate(std::size_t{blocks} * kBlockBytes);
    if (!buffer) co_return fail(buffer.error());
    window_ = *std::move(buffer);
  }
  window_start_ = position;
  window_blocks_ = blocks;
  window_bad_.assign(blocks, false);
  const std::uint64_t base = superblock_.geometry.segment(segment_).value;
  const std::uint64_t start = base + std::uint64_t{position} * kBlockBytes;
  const std::size_t bytes = std::size_t{blocks} * kBlockBytes;
  auto whole = co_await disk_.read(ByteOffset(start), window_.span(0, bytes));
  if (whole) co_return Result<void>{};
  // One bad sector must not hide its neighbours.
  for (std::uint32_t block = 0; block < blocks; ++block) {
    const std::size_t at = std::size_t{block} * kBlockBytes;
    auto single = co_await disk_.read(ByteOffset(start + at), window_.span(at, kBlockBytes));
    // A block that cannot be read looks like a torn one: not before it has been tried again.
    for (int attempt = 1; attempt < kReadAttempts && !single; ++attempt) {
      single = co_await disk_.read(ByteOffset(start + at), window_.span(at, kBlockBytes));
    }
    if (single) continue;
    // A device that is gone says nothing about its blocks.
    if (is(single.error(), RuntimeError::device_gone)) co_return fail(single.error());
    window_bad_[block] = true;
    ++blocks_unreadable_;
  }
  co_return Result<void>{};
}

Task<Result<std::span<const std::byte>>> SegmentScanner::load(std::uint32_t position,
                                                              std::uint32_t blocks) {
  using Bytes = std::span<const std::byte>;
  if (position + std::uint64_t{blocks} > segment_blocks_) co_return Bytes{};
  const bool inside = position >= window_start_ &&
                      position + blocks <= window_start_ + std::uint64_t{window_blocks_};
  if (!inside) {
    const std::uint32_t wanted =
        std::min(std::max(blocks, kWindowBlocks), segment_blocks_ - position);
    SARSEN_CO_TRY(co_await fill(position, wanted));
  }
  const std::uint32_t first = position - window_start_;
  for (std::uint32_t block = 0; block < blocks; ++block) {
    if (window_bad_[first + block]) co_return Bytes{};
  }
  co_return Bytes(
      window_.span(std::size_t{first} * kBlockBytes, std::size_t{blocks} * kBlockBytes));
}

// The group whose header starts at `position`, or nothing.
Task<Result<std::vector<JournalGroup>>> SegmentScanner::group_at(std::uint32_t position) {
  std::vector<JournalGroup> found;
  auto first = co_await load(position, 1);
  if (!first) co_return fail(first.error());
  if (first->empty()) co_return found;
  const auto probe = probe_group(*first, superblock_.device, segment_, position);
  if (!probe) co_return found;
  if (std::uint64_t{position} + probe->header_blocks + probe->payload_blocks > segment_blocks_) {
    co_return found;
  }
  auto part = co_await load(position, probe->header_blocks);
  if (!part) co_return fail(part.error());
  if (part->empty()) co_return found;
  auto group =
      decode_group(*part, superblock_.journal_salt, superblock_.device, segment_, position);
  if (group) found.push_back(*std::move(group));
  co_return found;
}

Task<Result<std::vector<JournalGroup>>> SegmentScanner::scan(SegmentGeneration live_from) {
  std::vector<JournalGroup> groups;
  std::uint32_t position = 0;
  while (position < segment_blocks_) {
    auto found = co_await group_at(position);
    if (!found) co_return fail(found.error());
    if (found->empty() || found->front().header.generation < live_from) {
      ++position;
      continue;
    }
    const GroupHeader& header = found->front().header;
    position += header.header_blocks + header.payload_blocks;
    // An older generation in a segment that was opened again is void: its last use was freed.
    if (!groups.empty() && groups.back().header.generation < header.generation) groups.clear();
    if (groups.empty() || (groups.back().header.generation == header.generation &&
                           groups.back().header.group_index < header.group_index)) {
      groups.push_back(std::move(found->front()));
    }
  }
  co_return groups;
}

Task<Result<bool>> SegmentScanner::payload_is_whole(JournalGroup group) {
  const std::uint32_t payload = group.header.position + group.header.header_blocks;
  for (const JournalRecord& record : group.records) {
    if (record.kind != RecordKind::write) continue;
    for (std::uint32_t block = 0; block < record.block_count; ++block) {
      auto bytes = co_await load(payload + record.payload_block + block, 1);
      if (!bytes) co_return fail(bytes.error());
      if (bytes->empty() || crc32c(*bytes) != record.checksums[block]) co_return false;
    }
  }
  co_return true;
}

}  // namespace sarsen
