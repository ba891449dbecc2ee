// A block that is handed out twice is silent corruption; one that is never handed out again is a
// leak.
#include "dataplane/store/index/extent_allocator.h"

#include <algorithm>
#include <map>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dataplane/base/rng.h"
#include "dataplane/store/index/error.h"

namespace sarsen {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr AllocatorOptions kNoReserve{.reserve_permille = 0, .low_water_blocks = 10};

DeviceRun run(std::uint64_t start, std::uint32_t blocks) {
  return {BlockIndex(start), blocks};
}

// One lane with one chunk of 1000 blocks that starts at device block 5000.
ExtentAllocator one_chunk(AllocatorOptions options = kNoReserve) {
  ExtentAllocator allocator(LaneId(1), options);
  allocator.add_chunk(ChunkIndex(7), BlockIndex(5000), 1000);
  return allocator;
}

bool fails_with(const Result<void>& result, IndexError code) {
  return !result && is(result.error(), code);
}

TEST(ExtentAllocator, gives_one_run_at_the_hint) {
  // Neighbours of an object are read together later.
  ExtentAllocator allocator = one_chunk();
  EXPECT_THAT(*allocator.allocate(16, BlockIndex(5300), Purpose::write),
              ElementsAre(run(5300, 16)));
  EXPECT_THAT(*allocator.allocate(16, BlockIndex(5308), Purpose::write),
              ElementsAre(run(5316, 16)));
  EXPECT_THAT(*allocator.allocate(4, std::nullopt, Purpose::write), ElementsAre(run(5332, 4)));
  EXPECT_THAT(*allocator.allocate(4, BlockIndex(9), Purpose::write), ElementsAre(run(5336, 4)))
      << "a hint in no chunk of the lane";
}

TEST(ExtentAllocator, goes_round_to_the_start_of_a_chunk) {
  // The hint is a wish; what is behind it may be used up.
  ExtentAllocator allocator = one_chunk();
  EXPECT_THAT(*allocator.allocate(16, BlockIndex(5990), Purpose::write),
              ElementsAre(run(5000, 16)));
}

TEST(ExtentAllocator, prefers_a_whole_run_elsewhere_to_pieces_near_the_hint) {
  // Pieces cost a read each, for ever.
  ExtentAllocator allocator = one_chunk();
  for (std::uint64_t block = 5000; block < 5100; block += 2) {
    ASSERT_TRUE(allocator.mark_used(run(block, 1)).has_value());
  }
  EXPECT_THAT(*allocator.allocate(8, BlockIndex(5003), Purpose::write), ElementsAre(run(5099, 8)));
}

TEST(ExtentAllocator, splits_when_no_run_is_long_enough) {
  // A fragmented device must not refuse a write that fits.
  ExtentAllocator allocator = one_chunk();
  for (std::uint64_t block = 5000; block < 6000; block += 4) {
    ASSERT_TRUE(allocator.mark_used(run(block, 1)).has_value());
  }
  EXPECT_THAT(*allocator.allocate(8, BlockIndex(5000), Purpose::write),
              ElementsAre(run(5001, 3), run(5005, 3), run(5009, 2)));
  EXPECT_TRUE(allocator.validate().has_value());
}

TEST(ExtentAllocator, keeps_the_pieces_of_one_allocation_together) {
  // The last search ended in another chunk; the pieces still belong near the hint.
  ExtentAllocator allocator(LaneId(1), kNoReserve);
  for (const std::uint32_t chunk : {0u, 1u}) {
    allocator.add_chunk(ChunkIndex(chunk), BlockIndex(chunk * 100), 100);
    for (std::uint64_t block = chunk * 100; block < chunk * 100 + 100; block += 2) {
      ASSERT_TRUE(allocator.mark_used(run(block, 1)).has_value());
    }
  }
  EXPECT_THAT(*allocator.allocate(3, BlockIndex(150), Purpose::write),
              ElementsAre(run(151, 1), run(153, 1), run(155, 1)));
}

TEST(ExtentAllocator, does_not_reuse_before_the_commit_is_durable) {
  // I-ALLOC-3: after a crash the old index still names these blocks.
  ExtentAllocator allocator = one_chunk();
  const auto all = *allocator.allocate(1000, std::nullopt, Purpose::write);
  allocator.commit_allocation(all[0]);
  ASSERT_TRUE(allocator.free_to_quarantine(run(5100, 50), CommitTicket(3)).has_value());
  ASSERT_TRUE(allocator.free_to_quarantine(run(5200, 50), CommitTicket(4)).has_value());
  EXPECT_FALSE(allocator.reserve(1, Purpose::remove));
  EXPECT_TRUE(allocator.fits_after_release(100, Purpose::write));
  EXPECT_FALSE(allocator.fits_after_release(101, Purpose::write));
  EXPECT_EQ(allocator.release_quarantine(CommitTicket(2)), 0u);
  EXPECT_EQ(allocator.release_quarantine(CommitTicket(3)), 50u);
  EXPECT_THAT(*allocator.allocate(50, std::nullopt, Purpose::write), ElementsAre(run(5100, 50)));
}

TEST(ExtentAllocator, keeps_a_promise_whatever_else_is_asked) {
  // A full device is reported before a write gets its sequence, never after (I-ALLOC-2).
  ExtentAllocator allocator = one_chunk();
  ASSERT_TRUE(allocator.reserve(300, Purpose::write));
  const auto refused = allocator.allocate(701, std::nullopt, Purpose::remove);
  ASSERT_FALSE(refused.has_value());
  EXPECT_TRUE(is(refused.error(), IndexError::no_space));
  EXPECT_TRUE(refused.error().retryable());
  ASSERT_TRUE(allocator.allocate(700, std::nullopt, Purpose::write).has_value());
  EXPECT_TRUE(fails_with(allocator.mark_used(run(5900, 1)), IndexError::no_space));
  for (int i = 0; i < 300; ++i) EXPECT_EQ(allocator.allocate_reserved(1, std::nullopt).size(), 1u);
  EXPECT_EQ(allocator.account().free, 0u);
}

TEST(ExtentAllocator, keeps_a_reserve_for_what_makes_room) {
  // Delete, trim and destage must work on a full device.
  ExtentAllocator allocator = one_chunk({.reserve_permille = 20, .low_water_blocks = 10});
  EXPECT_EQ(allocator.account().reserve_pool, 20u);
  EXPECT_FALSE(allocator.reserve(981, Purpose::write));
  ASSERT_TRUE(allocator.reserve(980, Purpose::write));
  EXPECT_FALSE(allocator.reserve(1, Purpose::write));
  EXPECT_TRUE(allocator.reserve(15, Purpose::destage));
  EXPECT_TRUE(allocator.reserve(5, Purpose::remove));
  EXPECT_FALSE(allocator.reserve(1, Purpose::remove));
  allocator.unreserve(20);
  EXPECT_FALSE(allocator.reserve(1, Purpose::write)) << "the reserve is filled up first";
}

TEST(ExtentAllocator, wants_a_chunk_before_it_runs_out) {
  // Asking takes a durable write of the device table; writes must not wait for it.
  ExtentAllocator allocator(LaneId(1), {.reserve_permille = 20, .low_water_blocks = 100});
  EXPECT_TRUE(allocator.wants_chunk());
  allocator.add_chunk(ChunkIndex(0), BlockIndex(0), 1000);
  EXPECT_FALSE(allocator.wants_chunk());
  ASSERT_TRUE(allocator.reserve(880, Purpose::write));
  EXPECT_FALSE(allocator.wants_chunk());
  ASSERT_TRUE(allocator.reserve(1, Purpose::write));
  EXPECT_TRUE(allocator.wants_chunk());
}

TEST(ExtentAllocator, gives_back_only_chunks_that_nobody_needs) {
  // A chunk that leaves with a named block or a promise would be written by two lanes.
  ExtentAllocator allocator(LaneId(1), kNoReserve);
  allocator.add_chunk(ChunkIndex(3), BlockIndex(300), 100);
  allocator.add_chunk(ChunkIndex(1), BlockIndex(100), 100);
  allocator.add_chunk(ChunkIndex(2), BlockIndex(200), 100);
  const auto runs = *allocator.allocate(10, BlockIndex(200), Purpose::write);
  allocator.commit_allocation(runs[0]);
  EXPECT_THAT(allocator.empty_chunks(), ElementsAre(ChunkIndex(1), ChunkIndex(3)));
  EXPECT_FALSE(allocator.remove_chunk(ChunkIndex(2)));
  ASSERT_TRUE(allocator.free_to_quarantine(runs[0], CommitTicket(1)).has_value());
  EXPECT_FALSE(allocator.remove_chunk(ChunkIndex(2))) << "quarantined blocks are not free";
  allocator.release_quarantine(CommitTicket(1));
  ASSERT_TRUE(allocator.reserve(101, Purpose::write));
  EXPECT_TRUE(allocator.remove_chunk(ChunkIndex(2)));
  EXPECT_FALSE(allocator.remove_chunk(ChunkIndex(1))) << "101 of 200 blocks are promised";
  EXPECT_EQ(allocator.account().total, 200u);
  EXPECT_TRUE(fails_with(allocator.mark_used(run(200, 1)), IndexError::outside_lane));
  EXPECT_TRUE(allocator.validate().has_value());
}

TEST(ExtentAllocator, reports_a_second_owner_and_changes_nothing) {
  // Two records that name one block: corruption somewhere, to be alarmed about, not to be merged.
  ExtentAllocator allocator = one_chunk();
  ASSERT_TRUE(allocator.mark_used(run(5010, 10)).has_value());
  const AllocatorAccount before = allocator.account();
  EXPECT_TRUE(fails_with(allocator.mark_used(run(5019, 5)), IndexError::double_owner));
  EXPECT_TRUE(fails_with(allocator.mark_used(run(5995, 6)), IndexError::outside_lane));
  EXPECT_TRUE(fails_with(allocator.mark_used(run(5995, 0)), IndexError::outside_lane));
  EXPECT_TRUE(fails_with(allocator.mark_used(run(~std::uint64_t{0}, 5)), IndexError::outside_lane));
  EXPECT_EQ(allocator.account(), before);
}

TEST(ExtentAllocator, reports_a_double_free_and_changes_nothing) {
  // An index that frees twice would give one block to two images.
  ExtentAllocator allocator = one_chunk();
  ASSERT_TRUE(allocator.mark_used(run(5010, 10)).has_value());
  EXPECT_TRUE(fails_with(allocator.free_to_quarantine(run(5009, 3), CommitTicket(1)),
                         IndexError::not_owned));
  ASSERT_TRUE(allocator.free_to_quarantine(run(5010, 3), CommitTicket(1)).has_value());
  const AllocatorAccount before = allocator.account();
  EXPECT_TRUE(fails_with(allocator.free_to_quarantine(run(5012, 3), CommitTicket(1)),
                         IndexError::not_owned));
  EXPECT_EQ(allocator.account(), before);
}

TEST(ExtentAllocator, stores_exactly_what_the_commit_names) {
  // I-ALLOC-4: pending blocks are found again by replay, quarantined ones are free in this commit.
  ExtentAllocator allocator = one_chunk();
  EXPECT_THAT(allocator.changed_chunks(), IsEmpty());
  ASSERT_TRUE(allocator.mark_used(run(5000, 30)).has_value());
  EXPECT_THAT(allocator.changed_chunks(), IsEmpty()) << "nothing that is stored changed";
  allocator.commit_allocation(run(5000, 20));
  ASSERT_TRUE(allocator.free_to_quarantine(run(5005, 20), CommitTicket(1)).has_value());
  const auto changed = allocator.changed_chunks();
  ASSERT_EQ(changed.size(), 1u);
  EXPECT_EQ(changed[0].chunk, ChunkIndex(7));
  BlockBitmap expected(1000);
  expected.set(0, 5);
  EXPECT_EQ(changed[0].value,
            encode_chunk_bitmap(expected, encode_chunk_key(LaneId(1), ChunkIndex(7))));
  EXPECT_THAT(allocator.changed_chunks(), IsEmpty());
  allocator.keep_changed(ChunkIndex(7));
  EXPECT_EQ(allocator.changed_chunks().size(), 1u);

  ExtentAllocator loaded(LaneId(1), kNoReserve);
  ASSERT_TRUE(loaded.load(ChunkIndex(7), BlockIndex(5000), 1000, changed[0].value).has_value());
  EXPECT_EQ(loaded.account().owned, 5u);
  EXPECT_EQ(loaded.account().free, 995u);
  EXPECT_TRUE(loaded.validate().has_value());
  EXPECT_TRUE(fails_with(loaded.load(ChunkIndex(8), BlockIndex(9000), 1000, changed[0].value),
                         IndexError::value_corrupt))
      << "the value of another chunk";
}

TEST(ExtentAllocator, takes_back_at_once_what_was_never_named) {
  // A failed large write leaves no trace.
  ExtentAllocator allocator = one_chunk();
  const auto runs = *allocator.allocate(40, std::nullopt, Purpose::write);
  allocator.give_back(runs[0]);
  EXPECT_EQ(allocator.account().free, 1000u);
  EXPECT_THAT(*allocator.allocate(1000, std::nullopt, Purpose::write),
              ElementsAre(run(5000, 1000)));
}

TEST(ExtentAllocator, handles_runs_that_leaves_merged_across_chunks) {
  // Chunks of one lane may be neighbours; a leaf does not know where one ends.
  ExtentAllocator allocator(LaneId(1), kNoReserve);
  allocator.add_chunk(ChunkIndex(1), BlockIndex(100), 100);
  allocator.add_chunk(ChunkIndex(2), BlockIndex(200), 100);
  ASSERT_TRUE(allocator.mark_used(run(190, 20)).has_value());
  allocator.commit_allocation(run(190, 20));
  EXPECT_EQ(allocator.changed_chunks().size(), 2u);
  ASSERT_TRUE(allocator.free_to_quarantine(run(195, 10), CommitTicket(1)).has_value());
  EXPECT_EQ(allocator.release_quarantine(CommitTicket(1)), 10u);
  EXPECT_TRUE(allocator.validate().has_value());
}

using ExtentAllocatorDeathTest = testing::Test;

TEST(ExtentAllocatorDeathTest, stops_on_misuse) {
  // These are bugs of the caller that would lose data later: stop at once.
  ExtentAllocator allocator = one_chunk();
  ASSERT_TRUE(allocator.mark_used(run(5000, 10)).has_value());
  EXPECT_DEATH(allocator.commit_allocation(run(5005, 10)), "I-ALLOC-1");
  EXPECT_DEATH(allocator.give_back(run(5010, 1)), "I-ALLOC-1");
  EXPECT_DEATH(allocator.unreserve(1), "I-ALLOC-2");
  EXPECT_DEATH((void)allocator.allocate_reserved(1, std::nullopt), "I-ALLOC-2");
  allocator.release_quarantine(CommitTicket(5));
  EXPECT_DEATH((void)allocator.free_to_quarantine(run(5000, 1), CommitTicket(5)), "I-ALLOC-3");
  EXPECT_DEATH(allocator.add_chunk(ChunkIndex(9), BlockIndex(5999), 5), "overlaps");
}

// One byte of state for each block.
enum class State : std::uint8_t { absent, free, pending, owned, quarantined };

struct Model {
  std::vector<State> blocks = std::vector<State>(2000, State::absent);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> quarantine;  // ticket, block
  std::uint64_t reserved = 0;
  std::uint64_t ticket = 1;

  std::uint64_t count(State state) const {
    return static_cast<std::uint64_t>(std::count(blocks.begin(), blocks.end(), state));
  }
  bool all(DeviceRun run, State state) const {
    const auto begin = blocks.begin() + static_cast<std::ptrdiff_t>(run.start.value);
    return std::all_of(begin, begin + run.blocks, [&](State other) { return other == state; });
  }
  void set(DeviceRun run, State state) {
    const auto begin = blocks.begin() + static_cast<std::ptrdiff_t>(run.start.value);
    std::fill(begin, begin + run.blocks, state);
  }
  std::uint32_t longest_free_run_of_chunk() const {
    std::uint32_t longest = 0;
    std::uint32_t length = 0;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      length = blocks[i] == State::free ? length + 1 : 0;
      if (i % 300 == 0) length = std::min(length, 1u);
      longest = std::max(longest, length);
    }
    return longest;
  }
};

class ModelRun {
 public:
  explicit ModelRun(std::uint64_t seed) : rng_(seed), allocator_(LaneId(1), options()) {
    // Chunks of 300 blocks; 0 and 1 are neighbours, 3 is apart.
    for (const std::uint32_t chunk : {3u, 0u, 1u}) {
      allocator_.add_chunk(ChunkIndex(chunk), BlockIndex(chunk * 300), 300);
      model_.set(run(chunk * 300, 300), State::free);
    }
  }

  void step() {
    switch (rng_.below(8)) {
      case 0:
      case 1: allocate(); break;
      case 2: mark(); break;
      case 3: commit(); break;
      case 4:
      case 5: drop(); break;
      case 6: release(); break;
      default: reserve(); break;
    }
  }

  void check() const {
    const auto valid = allocator_.validate();
    ASSERT_TRUE(valid.has_value()) << valid.error().message();
    const AllocatorAccount account = allocator_.account();
    ASSERT_EQ(account.free, model_.count(State::free));
    ASSERT_EQ(account.pending, model_.count(State::pending));
    ASSERT_EQ(account.owned, model_.count(State::owned));
    ASSERT_EQ(account.quarantined, model_.count(State::quarantined));
    ASSERT_EQ(account.reserved, model_.reserved);
    ASSERT_EQ(account.total, 900u);
  }

  // What is stored, chunk by chunk, is what the model owns.
  void check_stored() {
    for (const std::uint32_t chunk : {0u, 1u, 3u}) allocator_.keep_changed(ChunkIndex(chunk));
    for (const ChangedChunk& changed : allocator_.changed_chunks()) {
      BlockBitmap expected(300);
      for (std::uint32_t i = 0; i < 300; ++i) {
        if (model_.blocks[changed.chunk.value * 300 + i] == State::owned) expected.set(i, 1);
      }
      ASSERT_EQ(changed.value,
                encode_chunk_bitmap(expected, encode_chunk_key(LaneId(1), changed.chunk)));
    }
  }

 private:
  static AllocatorOptions options() {
    return {.reserve_permille = 50, .low_water_blocks = 10, .chunks_scanned_max = 8};
  }

  DeviceRun any_run(std::uint64_t length_max) {
    return run(rng_.below(1190), static_cast<std::uint32_t>(rng_.between(1, length_max)));
  }

  void allocate() {
    const auto blocks = static_cast<std::uint32_t>(rng_.between(1, rng_.chance(0.5) ? 4 : 64));
    const auto hint = rng_.chance(0.5) ? std::optional(BlockIndex(rng_.below(1300))) : std::nullopt;
    const auto purpose = static_cast<Purpose>(rng_.below(3));
    const std::uint64_t pool = purpose == Purpose::write ? 45 : 0;
    const bool fits = model_.count(State::free) >= model_.reserved + pool + blocks;
    const bool from_promise = model_.reserved >= blocks && rng_.chance(0.5);
    const bool one_run_exists = model_.longest_free_run_of_chunk() >= blocks;
    DeviceRuns runs;
    if (from_promise) {
      model_.reserved -= blocks;
      runs = allocator_.allocate_reserved(blocks, hint);
    } else {
      const auto result = allocator_.allocate(blocks, hint, purpose);
      ASSERT_EQ(result.has_value(), fits);
      if (!result) return;
      runs = *result;
    }
    std::uint32_t total = 0;
    for (const DeviceRun& piece : runs) {
      ASSERT_TRUE(model_.all(piece, State::free)) << "I-ALLOC-3";
      model_.set(piece, State::pending);
      total += piece.blocks;
    }
    ASSERT_EQ(total, blocks);
    if (one_run_exists) ASSERT_EQ(runs.size(), 1u);
  }

  void mark() {
    const DeviceRun wanted = any_run(6);
    const bool outside = !model_.all(wanted, State::free) && touches(wanted, State::absent);
    const bool promised = model_.count(State::free) < model_.reserved + wanted.blocks;
    const auto result = allocator_.mark_used(wanted);
    if (outside) {
      ASSERT_TRUE(fails_with(result, IndexError::outside_lane));
    } else if (!model_.all(wanted, State::free)) {
      ASSERT_TRUE(fails_with(result, IndexError::double_owner));
    } else if (promised) {
      ASSERT_TRUE(fails_with(result, IndexError::no_space));
    } else {
      ASSERT_TRUE(result.has_value());
      model_.set(wanted, State::pending);
    }
  }

  bool touches(DeviceRun wanted, State state) const {
    for (std::uint64_t i = wanted.start.value; i < wanted.end().value; ++i) {
      if (model_.blocks[i] == state) return true;
    }
    return false;
  }

  void commit() {
    for (int i = 0; i < 50; ++i) {
      const DeviceRun wanted = any_run(6);
      if (!model_.all(wanted, State::pending)) continue;
      if (rng_.chance(0.2)) {
        allocator_.give_back(wanted);
        model_.set(wanted, State::free);
      } else {
        allocator_.commit_allocation(wanted);
        model_.set(wanted, State::owned);
      }
    }
  }

  void drop() {
    for (int i = 0; i < 5; ++i) {
      const DeviceRun wanted = any_run(12);
      ASSERT_EQ(allocator_.owns(wanted), model_.all(wanted, State::owned));
      const bool outside = touches(wanted, State::absent);
      const bool bad = touches(wanted, State::free) || touches(wanted, State::quarantined);
      const auto result = allocator_.free_to_quarantine(wanted, CommitTicket(model_.ticket));
      if (outside || bad) {
        ASSERT_TRUE(fails_with(result, outside ? IndexError::outside_lane : IndexError::not_owned));
        continue;
      }
      ASSERT_TRUE(result.has_value());
      model_.set(wanted, State::quarantined);
      for (std::uint64_t block = wanted.start.value; block < wanted.end().value; ++block) {
        model_.quarantine.emplace_back(model_.ticket, block);
      }
    }
  }

  void release() {
    ++model_.ticket;
    if (rng_.chance(0.5)) return;
    const std::uint64_t upto =
        rng_.between(model_.ticket > 4 ? model_.ticket - 4 : 0, model_.ticket - 1);
    std::uint64_t released = 0;
    std::erase_if(model_.quarantine, [&](const auto& entry) {
      if (entry.first > upto) return false;
      model_.blocks[entry.second] = State::free;
      ++released;
      return true;
    });
    ASSERT_EQ(allocator_.release_quarantine(CommitTicket(upto)), released);
  }

  void reserve() {
    if (model_.reserved > 0 && rng_.chance(0.5)) {
      const std::uint64_t blocks = rng_.between(1, model_.reserved);
      allocator_.unreserve(blocks);
      model_.reserved -= blocks;
      return;
    }
    const std::uint64_t blocks = rng_.below(80);
    const auto purpose = static_cast<Purpose>(rng_.below(3));
    const std::uint64_t pool = purpose == Purpose::write ? 45 : 0;
    const bool fits = model_.count(State::free) >= model_.reserved + pool + blocks;
    const bool fits_later = model_.count(State::free) + model_.count(State::quarantined) >=
                            model_.reserved + pool + blocks;
    ASSERT_EQ(allocator_.fits_after_release(blocks, purpose), fits_later || blocks == 0);
    ASSERT_EQ(allocator_.reserve(blocks, purpose), fits || blocks == 0);
    if (fits || blocks == 0) model_.reserved += blocks;
  }

  Rng rng_;
  ExtentAllocator allocator_;
  Model model_;
};

TEST(ExtentAllocator, behaves_like_a_byte_for_each_block) {
  // Every state, every sum and every stored bit against the simplest model (I-ALLOC-1 to 4).
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ModelRun world(seed);
    for (int step = 0; step < 300; ++step) {
      ASSERT_NO_FATAL_FAILURE(world.step());
      ASSERT_NO_FATAL_FAILURE(world.check());
    }
    ASSERT_NO_FATAL_FAILURE(world.check_stored());
  }
}

}  // namespace
}  // namespace sarsen
