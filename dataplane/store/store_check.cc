#include "dataplane/store/store_check.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "dataplane/runtime/timeout.h"
#include "dataplane/store/error.h"
#include "dataplane/store/index/index_leaf_codec.h"

namespace sarsen {
namespace {

constexpr std::size_t kScrubPageLeaves = 256;
constexpr std::size_t kCorruptListed = 16;

struct IndexPage {
  std::vector<std::pair<LeafKey, IndexLeaf>> leaves;
  std::string next;  // empty at the end
};

// On a thread of the pool.
Result<IndexPage> read_page(const MetadataDb& db, const std::string& from, std::size_t leaves_max) {
  IndexPage page;
  auto cursor = db.cursor(MetadataFamily::index, from, {});
  for (; cursor.valid(); cursor.next()) {
    if (page.leaves.size() == leaves_max) {
      page.next = std::string(cursor.key());
      return page;
    }
    const auto key_bytes = std::as_bytes(std::span(cursor.key()));
    auto key = decode_leaf_key(key_bytes);
    if (!key) return fail(make_error(StoreError::corrupt_index, key.error().message()));
    auto leaf = decode_leaf(std::as_bytes(std::span(cursor.value())), key_bytes);
    if (!leaf) return fail(make_error(StoreError::corrupt_index, leaf.error().message()));
    page.leaves.emplace_back(*key, *std::move(leaf));
  }
  if (auto status = cursor.status(); !status) return fail(index_error(status.error()));
  return page;
}

std::string name_of(const ObjectKey& object) {
  return "pool " + std::to_string(object.pool.value) + " family " + std::to_string(object.family) +
         " branch " + std::to_string(object.branch) + " object " +
         std::to_string(object.object_number);
}

std::string_view name_of(MetadataFamily family) {
  switch (family) {
    case MetadataFamily::index: return "index of objects";
    case MetadataFamily::allocator: return "free space of lanes";
    case MetadataFamily::meta: return "positions of the journal";
  }
  return "unknown";
}

// Where to go on when the index cannot be read from `from`; nothing when the damage is not among
// the ranges. Forgets the range, so that it is stepped over once.
std::optional<std::string> behind_damage(std::vector<DamagedRange>& damaged,
                                         const std::string& from) {
  const auto next = std::ranges::find_if(damaged, [&from](const DamagedRange& range) {
    return range.family == MetadataFamily::index && range.last >= from;
  });
  if (next == damaged.end()) return std::nullopt;
  std::string behind = next->last + std::string(1, '\0');
  damaged.erase(next);
  return behind;
}

// Waits for as long as a read of `blocks` may take.
Task<Result<void>> keep_pace(StoreState* state, ScrubPace pace, std::uint64_t blocks) {
  if (pace.token.cancelled()) co_return fail(pace.token.error());
  if (pace.bytes_per_second == 0) co_return Result<void>();
  const double share =
      static_cast<double>(blocks * kBlockBytes) / static_cast<double>(pace.bytes_per_second);
  const Duration wait(static_cast<std::int64_t>(share * 1e9));
  co_return co_await sleep_for(state->env.clock, wait, pace.token);
}

}  // namespace

Task<Result<ScrubReport>> scrub_store(StoreState& state, StoreRead& reader, ScrubPace pace) {
  ScrubReport report;
  auto buffer = state.env.buffers.allocate(std::size_t{kLeafBlocks} * kBlockBytes);
  if (!buffer) co_return fail(buffer.error());
  MetadataDb& db = *state.db;
  auto damaged = co_await state.env.blocking.run(
      [&db] { return db.damaged_ranges(MetadataDb::Look::everything); });
  if (!damaged) co_return fail(damaged.error());
  for (const DamagedRange& range : *damaged) {
    report.metadata_damage.push_back(std::string(name_of(range.family)) + ", a block of " +
                                     range.file);
  }
  std::string from;
  do {
    auto page =
        co_await state.env.blocking.run([&] { return read_page(db, from, kScrubPageLeaves); });
    if (!page && page.error().error_class() == ErrorClass::corrupt) {
      const auto next = behind_damage(*damaged, from);
      if (!next) {
        report.metadata_damage.push_back("index of objects, " + page.error().message());
        break;
      }
      from = *next;
      continue;
    }
    if (!page) co_return fail(page.error());
    for (const auto& [key, leaf] : page->leaves) {
      SARSEN_CO_TRY(co_await keep_pace(&state, pace, leaf.mapped_blocks()));
      // Through the ordinary read path: a block that was overwritten meanwhile is verified as it
      // is.
      auto outcome = co_await reader.read(key.object, key.leaf * kLeafBlocks, buffer->span());
      if (!outcome) co_return fail(outcome.error());
      report.blocks_checked += leaf.mapped_blocks();
      report.corrupt_found += outcome->corrupt_blocks.size();
      for (const std::uint32_t block : outcome->corrupt_blocks) {
        if (report.corrupt.size() < kCorruptListed) report.corrupt.emplace_back(key.object, block);
      }
    }
    from = page->next;
  } while (!from.empty());
  co_return report;
}

SpaceAccount space_account(const StoreState& state) {
  const std::uint64_t per_chunk = state.superblock.geometry.blocks_per_chunk();
  SpaceAccount account;
  account.total_blocks = state.superblock.geometry.chunk_count * per_chunk;
  const TableStats table = state.table->stats();
  account.metadata_blocks = table.chunks_metadata * per_chunk;
  account.unassigned_blocks = table.chunks_free * per_chunk;
  for (const Lane& lane : state.lanes) {
    const AllocatorAccount blocks = lane.allocator.account();
    account.data_blocks += blocks.owned + blocks.pending;
    account.quarantined_blocks += blocks.quarantined;
    account.free_blocks += blocks.free;
    account.reserved_blocks += blocks.reserved;
  }
  return account;
}

Task<Result<SpaceAccount>> audit_store(StoreState& state) {
  std::set<std::uint64_t> owned;
  std::string problem;
  std::string from;
  do {
    MetadataDb& db = *state.db;
    auto page =
        co_await state.env.blocking.run([&] { return read_page(db, from, kScrubPageLeaves); });
    if (!page) co_return fail(page.error());
    for (const auto& [key, leaf] : page->leaves) {
      for (const Extent& extent : leaf.extents()) {
        const DeviceRun run = extent.stored_run();
        for (std::uint32_t i = 0; i < run.blocks; ++i) {
          if (!owned.insert(run.start.value + i).second && !extent.shared && problem.empty()) {
            problem = "device block " + std::to_string(run.start.value + i) +
                      " has two owners, one is " + name_of(key.object);
          }
        }
      }
    }
    from = page->next;
  } while (!from.empty());

  std::uint64_t allocator_owned = 0;
  for (const Lane& lane : state.lanes) {
    allocator_owned += lane.allocator.account().owned;
    if (auto valid = lane.allocator.validate(); !valid) problem = valid.error().message();
  }
  if (problem.empty() && allocator_owned != owned.size()) {
    problem = "the index names " + std::to_string(owned.size()) + " blocks, the allocators own " +
              std::to_string(allocator_owned);
  }
  const SpaceAccount account = space_account(state);
  const std::uint64_t sum = account.data_blocks + account.quarantined_blocks + account.free_blocks +
                            account.metadata_blocks + account.unassigned_blocks;
  if (problem.empty() && sum != account.total_blocks) {
    problem = "the parts sum to " + std::to_string(sum) + " blocks of " +
              std::to_string(account.total_blocks);
  }
  if (!problem.empty()) co_return fail(make_error(StoreError::corrupt_index, problem));
  co_return account;
}

}  // namespace sarsen
