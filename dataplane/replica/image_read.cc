// The reads of ImageService.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "dataplane/base/crc32c.h"
#include "dataplane/replica/image_service.h"
#include "dataplane/wire/error.h"

namespace sarsen {
namespace {

using wire::RemoteError;

// Shorter reads are sent as data, whatever it is: to ask where zeros are costs as much as they do.
constexpr std::uint32_t kRunsWorthAsking = 16;

// Of a read or a status query.
template <typename Request>
AdmissionQuestion question_of(const Request& request) {
  return {.pg = request.object.pg,
          .image = request.object.image,
          .attachment = request.attachment,
          .branch = request.generation.branch,
          .object = request.object.object,
          .range = request.range};
}

// The part of `range` that lies in blocks [first, first + count) of the object.
std::uint32_t bytes_within(wire::Range range, std::uint32_t first, std::uint32_t count) {
  const std::uint32_t start = std::max(range.offset, first * kBlockBytes);
  const std::uint32_t end = std::min(range.offset + range.length, (first + count) * kBlockBytes);
  return end - start;
}

}  // namespace

// Rule R1: whoever looks at blocks that a change in flight overlaps waits for it.
Task<Result<ObjectKey>> ImageService::enter_read(wire::CallContext context,
                                                 AdmissionQuestion question,
                                                 std::optional<RangeLock<ObjectKey>>* lock) {
  SARSEN_CO_TRY(check_peer(context, question.attachment));
  const auto admitted = co_await admit(question, context.deadline);
  if (!admitted) co_return fail(admitted.error());
  const ObjectKey key = (*admitted)->find_image(question.image)->object_key(*question.object);
  const BlockRange blocks = blocks_of(question.range);
  lock->emplace(locks_, key, BlockIndex(blocks.first_block),
                BlockIndex(blocks.first_block + blocks.block_count), LockMode::shared);
  SARSEN_CO_TRY(co_await (*lock)->acquire());
  // While we waited, the map may have moved on.
  if (AdmissionAnswer answer = ask(*map_.current(), question); answer.refusal) {
    co_return fail(*std::move(answer.refusal));
  }
  co_return key;
}

Task<Result<wire::ReadResult>> ImageService::handle(wire::CallContext context,
                                                    wire::ReadRequest request) {
  const auto hold = operations_.hold();
  if (!hold) co_return fail(hold.error());
  std::optional<RangeLock<ObjectKey>> lock;
  const auto key = co_await enter_read(context, question_of(request), &lock);
  if (!key) co_return fail(key.error());
  auto result = co_await read_blocks(*key, request.range);
  if (!result) co_return fail(to_remote(result.error()));
  co_return result;
}

Task<Result<std::vector<AllocationRun>>> ImageService::runs_to_read(ObjectKey key,
                                                                    BlockRange blocks) {
  if (blocks.block_count < kRunsWorthAsking) {
    co_return std::vector<AllocationRun>{{.block_count = blocks.block_count, .allocated = true}};
  }
  co_return co_await store_.allocation(key, blocks);
}

// Data runs lie one after the other in whole blocks; then the bytes before the range are dropped.
Task<Result<wire::ReadResult>> ImageService::read_blocks(ObjectKey key, wire::Range range) {
  const BlockRange blocks = blocks_of(range);
  const auto runs = co_await runs_to_read(key, blocks);
  if (!runs) co_return fail(runs.error());
  std::size_t data_blocks = 0;
  for (const AllocationRun& run : *runs) data_blocks += run.allocated ? run.block_count : 0;
  wire::ReadResult result;
  if (data_blocks > 0) {
    auto buffer = env_.buffers.allocate(data_blocks * kBlockBytes);
    if (!buffer) co_return fail(buffer.error());
    result.data = *std::move(buffer);
  }
  std::uint32_t block = blocks.first_block;
  std::size_t at = 0;  // in the data
  for (const AllocationRun& run : *runs) {
    const std::uint32_t length = bytes_within(range, block, run.block_count);
    result.reply.runs.push_back({.length = length, .present = run.allocated});
    if (run.allocated) {
      const std::size_t bytes = std::size_t{run.block_count} * kBlockBytes;
      auto outcome = co_await store_.read_partial(key, block, result.data.span(at, bytes));
      if (!outcome) co_return fail(outcome.error());
      if (!outcome->corrupt_blocks.empty()) {
        co_return fail(wire::make_error(RemoteError::corrupt,
                                        "block " + std::to_string(outcome->corrupt_blocks.front()) +
                                            " of object " + std::to_string(key.object_number)));
      }
      auto& sums = result.reply.checksums;
      sums.insert(sums.end(), outcome->checksums.begin(), outcome->checksums.end());
      // Sums of whole blocks are those of the disk; a fragment's is made from bytes that matched.
      const std::uint32_t start = std::max(range.offset, block * kBlockBytes);
      const std::uint32_t end = start + length;
      const auto fragment = [&](std::uint32_t from, std::uint32_t to) {
        return crc32c(result.data.span(at + from - std::size_t{block} * kBlockBytes, to - from));
      };
      if (start % kBlockBytes != 0) {
        const auto block_end = static_cast<std::uint32_t>(round_up(start, kBlockBytes));
        sums[sums.size() - run.block_count] = fragment(start, std::min(end, block_end));
      }
      if (end % kBlockBytes != 0) {
        const auto block_start = static_cast<std::uint32_t>(round_down(end, kBlockBytes));
        sums.back() = fragment(std::max(start, block_start), end);
      }
      at += bytes;
    }
    block += run.block_count;
  }
  const std::uint32_t head = range.offset % kBlockBytes;
  if (head != 0 && runs->front().allocated) {
    std::memmove(result.data.data(), result.data.data() + head, at - head);
  }
  co_return result;
}

Task<Result<wire::StatusReply>> ImageService::handle(wire::CallContext context,
                                                     wire::StatusRequest request) {
  const auto hold = operations_.hold();
  if (!hold) co_return fail(hold.error());
  std::optional<RangeLock<ObjectKey>> lock;
  const auto key = co_await enter_read(context, question_of(request), &lock);
  if (!key) co_return fail(key.error());
  const BlockRange blocks = blocks_of(request.range);
  const auto runs = co_await store_.allocation(*key, blocks);
  if (!runs) co_return fail(to_remote(runs.error()));
  wire::StatusReply reply;
  std::uint32_t block = blocks.first_block;
  for (const AllocationRun& run : *runs) {
    if (reply.runs.size() == request.runs_max) break;
    reply.runs.push_back(
        {.length = bytes_within(request.range, block, run.block_count), .present = run.allocated});
    block += run.block_count;
  }
  co_return reply;
}

}  // namespace sarsen
