// A leaf decides which device blocks hold the data and which are given back: a mistake here is lost
// data or data of another image.
#include "dataplane/store/index/index_leaf.h"

#include <array>
#include <map>
#include <optional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dataplane/store/index/error.h"
#include "tests/unit/store/index/leaf_samples.h"

namespace sarsen {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

FreedRun unshared(std::uint64_t start, std::uint32_t blocks) {
  return {{BlockIndex(start), blocks}, false, std::nullopt};
}

LeafRun run(LeafRunKind kind, std::uint32_t first, std::uint32_t count, std::uint64_t device,
            bool corrupt = false) {
  return {kind, corrupt, static_cast<std::uint8_t>(first), static_cast<std::uint8_t>(count),
          BlockIndex(device)};
}

TEST(IndexLeaf, is_one_hole_at_first) {
  // What was never written reads as zeros and takes no space.
  const IndexLeaf leaf;
  EXPECT_TRUE(leaf.empty());
  EXPECT_FALSE(leaf.lookup(0).has_value());
  EXPECT_THAT(leaf.runs(0, 16), ElementsAre(run(LeafRunKind::hole, 0, 16, 0)));
}

TEST(IndexLeaf, finds_block_checksum_and_write) {
  // A read needs place and checksum of the same write.
  IndexLeaf leaf;
  EXPECT_THAT(leaf.put(plain_extent(4, 3, 500, 9)), IsEmpty());
  const auto location = leaf.lookup(5);
  ASSERT_TRUE(location.has_value());
  EXPECT_EQ(location->device_block, BlockIndex(501));
  EXPECT_EQ(location->checksum, 0x1000u + 501);
  EXPECT_EQ(location->extent->lane_sequence, LaneSequence(9));
  EXPECT_FALSE(leaf.lookup(3).has_value());
  EXPECT_FALSE(leaf.lookup(7).has_value());
}

TEST(IndexLeaf, returns_what_an_overwrite_replaces) {
  // What the leaf stops naming must be freed exactly once (I-INDEX-3).
  IndexLeaf leaf;
  leaf.put(plain_extent(0, 16, 100));
  EXPECT_THAT(leaf.put(plain_extent(4, 2, 900, 2)), ElementsAre(unshared(104, 2)));
  EXPECT_THAT(leaf.put(plain_extent(2, 6, 700, 3)),
              ElementsAre(unshared(102, 2), unshared(900, 2), unshared(106, 2)));
  EXPECT_THAT(leaf.remove(0, 16),
              ElementsAre(unshared(100, 2), unshared(700, 6), unshared(108, 8)));
  EXPECT_TRUE(leaf.empty());
}

TEST(IndexLeaf, keeps_the_blocks_of_an_overwrite_in_place) {
  // Destage writes home in place: freeing that home would hand it to another image.
  IndexLeaf leaf;
  leaf.put(plain_extent(0, 16, 100));
  EXPECT_THAT(leaf.put(plain_extent(3, 4, 103, 2)), IsEmpty());
  EXPECT_EQ(leaf.lookup(3)->extent->lane_sequence, LaneSequence(2));
  EXPECT_EQ(leaf.lookup(7)->device_block, BlockIndex(107));
  EXPECT_THAT(leaf.put(plain_extent(0, 16, 108, 3)), ElementsAre(unshared(100, 8)));
}

TEST(IndexLeaf, joins_neighbours_on_the_device_into_one_read) {
  // 16 small writes into one home are one device read later.
  IndexLeaf leaf;
  for (std::uint32_t block = 0; block < 16; ++block) {
    if (block != 9) leaf.put(plain_extent(block, 1, 400 + block, 50 - block));
  }
  EXPECT_THAT(leaf.runs(0, 16),
              ElementsAre(run(LeafRunKind::data, 0, 9, 400), run(LeafRunKind::hole, 9, 1, 0),
                          run(LeafRunKind::data, 10, 6, 410)));
  EXPECT_THAT(leaf.runs(3, 4), ElementsAre(run(LeafRunKind::data, 3, 4, 403)));
}

TEST(IndexLeaf, keeps_corrupt_blocks_apart_until_they_are_written_again) {
  // A known bad block is repaired from a peer, never served; its neighbours are served.
  IndexLeaf leaf;
  leaf.put(plain_extent(0, 8, 100));
  EXPECT_EQ(leaf.mark_corrupt(2, 10), 6u);
  EXPECT_EQ(leaf.mark_corrupt(3, 1), 0u);
  EXPECT_THAT(leaf.runs(0, 9), ElementsAre(run(LeafRunKind::data, 0, 2, 100),
                                           run(LeafRunKind::data, 2, 6, 102, true),
                                           run(LeafRunKind::hole, 8, 1, 0)));
  EXPECT_THAT(leaf.put(plain_extent(2, 6, 102)), IsEmpty());
  EXPECT_EQ(leaf.extents().size(), 1u) << "the repaired write is one extent again";
}

TEST(IndexLeaf, keeps_writes_apart_that_differ_in_anything) {
  // An extent that swallowed another write would give its blocks a wrong sequence.
  const auto extents_after = [](auto change) {
    IndexLeaf leaf;
    leaf.put(plain_extent(0, 2, 100));
    Extent next = plain_extent(2, 2, 102);
    change(next);
    leaf.put(next);
    return leaf.extents().size();
  };
  EXPECT_EQ(extents_after([](Extent&) {}), 1u);
  EXPECT_EQ(extents_after([](Extent& e) { e.lane_sequence = LaneSequence(9); }), 2u);
  EXPECT_EQ(extents_after([](Extent& e) { e.pg_epoch = PgEpoch(9); }), 2u);
  EXPECT_EQ(extents_after([](Extent& e) { e.pg_sequence = PgSequence(9); }), 2u);
  EXPECT_EQ(extents_after([](Extent& e) { e.change_generation = 9; }), 2u);
  EXPECT_EQ(extents_after([](Extent& e) { e.shared = true; }), 2u);
  EXPECT_EQ(extents_after([](Extent& e) { e.corrupt = true; }), 2u);
  EXPECT_EQ(extents_after([](Extent& e) { e.device_block = BlockIndex(103); }), 2u);
}

TEST(IndexLeaf, drops_a_reference_where_blocks_are_shared) {
  // Freeing a shared block would take it from the clone.
  IndexLeaf leaf;
  leaf.put(plain_extent(0, 8, 100));
  leaf.share(77);
  EXPECT_THAT(leaf.put(plain_extent(2, 2, 300, 2)),
              ElementsAre(FreedRun{{BlockIndex(102), 2}, true, 77}));
  leaf.share(78);
  EXPECT_THAT(leaf.remove(0, 4), ElementsAre(FreedRun{{BlockIndex(100), 2}, true, 77},
                                             FreedRun{{BlockIndex(300), 2}, true, 78}));
}

TEST(IndexLeaf, frees_a_compressed_unit_with_its_last_piece) {
  // The pieces that are left still need all of the compressed bytes.
  IndexLeaf leaf;
  leaf.put(compressed_extent(0, 16, 100, 5 * kBlockBytes));
  EXPECT_THAT(leaf.put(plain_extent(4, 4, 300, 2)), IsEmpty());
  EXPECT_EQ(leaf.lookup(9)->device_block, BlockIndex(100));
  EXPECT_EQ(leaf.lookup(9)->extent->compression()->unit_offset, 8);
  EXPECT_THAT(leaf.runs(0, 16),
              ElementsAre(run(LeafRunKind::unit, 0, 4, 100), run(LeafRunKind::data, 4, 4, 300),
                          run(LeafRunKind::unit, 8, 8, 100)));
  EXPECT_THAT(leaf.remove(8, 8), IsEmpty());
  EXPECT_THAT(leaf.put(plain_extent(0, 8, 400, 3)),
              ElementsAre(unshared(100, 5), unshared(300, 4)));
}

TEST(IndexLeaf, frees_a_compressed_unit_once_when_two_pieces_go_together) {
  // A double free would give one block two owners.
  IndexLeaf leaf;
  leaf.put(compressed_extent(0, 16, 100, 3 * kBlockBytes));
  leaf.put(plain_extent(4, 4, 300, 2));
  EXPECT_THAT(leaf.remove(0, 16), ElementsAre(unshared(100, 3), unshared(300, 4)));
}

TEST(IndexLeaf, accepts_no_extent_that_names_blocks_of_another) {
  // Input from the journal or a peer is refused before it makes a second owner (I-INDEX-2).
  IndexLeaf leaf;
  leaf.put(plain_extent(0, 8, 100));
  EXPECT_TRUE(leaf.accepts(plain_extent(2, 3, 102)));
  EXPECT_TRUE(leaf.accepts(plain_extent(0, 8, 104)));
  EXPECT_FALSE(leaf.accepts(plain_extent(2, 3, 101))) << "head still names 101";
  EXPECT_FALSE(leaf.accepts(plain_extent(2, 3, 103))) << "tail still names 105";
  EXPECT_FALSE(leaf.accepts(plain_extent(8, 1, 107)));
  leaf.share(std::nullopt);
  Extent again = plain_extent(8, 1, 107);
  EXPECT_FALSE(leaf.accepts(again));
  again.shared = true;
  EXPECT_TRUE(leaf.accepts(again)) << "shared blocks may be named twice";
}

TEST(IndexLeaf, accepts_no_impossible_extent) {
  // Each of these would read or free blocks that are not the extent's.
  const IndexLeaf leaf;
  const auto refused = [&](auto change) {
    Extent extent = compressed_extent(0, 16, 100, 3 * kBlockBytes);
    auto options = std::make_shared<ExtentOptions>(*extent.options);
    extent.options = options;
    change(extent, *options);
    return !leaf.accepts(extent);
  };
  EXPECT_FALSE(refused([](Extent&, ExtentOptions&) {}));
  EXPECT_TRUE(refused([](Extent& extent, ExtentOptions&) { extent.block_count = 0; }));
  EXPECT_TRUE(refused([](Extent& extent, ExtentOptions&) { extent.first_block = 1; }));
  EXPECT_TRUE(refused([](Extent& extent, ExtentOptions&) { extent.checksums.pop_back(); }));
  EXPECT_TRUE(refused([](Extent& extent, ExtentOptions&) {
    extent.device_block = BlockIndex(kDeviceBlocksMax - 2);
  }));
  EXPECT_TRUE(refused([](Extent&, ExtentOptions& o) { o.compression->codec = 0; }));
  EXPECT_TRUE(refused([](Extent&, ExtentOptions& o) { o.compression->unit_offset = 1; }));
  EXPECT_TRUE(refused([](Extent&, ExtentOptions& o) { o.compression->unit_blocks = 17; }));
  EXPECT_TRUE(refused([](Extent& extent, ExtentOptions& o) {
    o.compression->stored_bytes = 0;
    extent.checksums.clear();
  }));
  EXPECT_TRUE(refused([](Extent& extent, ExtentOptions& o) {
    o.compression->stored_bytes = 16 * kBlockBytes + 1;
    extent.checksums.resize(17);
  }));
  EXPECT_TRUE(refused([](Extent&, ExtentOptions& o) { o.encryption.emplace(); }));
  EXPECT_TRUE(refused([](Extent&, ExtentOptions& o) { o.reference = 5; })) << "not shared";
  EXPECT_TRUE(refused([](Extent& extent, ExtentOptions& o) {
    o.compression.reset();
    extent.checksums.resize(16);
  })) << "options without an option";
}

// One entry for each block of a leaf.
struct ModelBlock {
  std::uint64_t device_block = 0;  // the unit's first when compressed
  std::uint32_t stored_blocks = 1;
  bool compressed = false;
  bool shared = false;
  bool corrupt = false;
  Extent origin;
  std::uint32_t checksum = 0;
};
using Model = std::array<std::optional<ModelBlock>, kLeafBlocks>;
// How often each device block is named, once for each unit or block, shared and unshared apart.
using Names = std::map<std::pair<std::uint64_t, bool>, int>;

Names names_of(const Model& model) {
  Names names;
  std::map<std::uint64_t, bool> units;
  for (const auto& block : model) {
    if (!block) continue;
    if (block->compressed && !units.emplace(block->device_block, true).second) continue;
    for (std::uint32_t i = 0; i < block->stored_blocks; ++i) {
      ++names[{block->device_block + i, block->shared}];
    }
  }
  return names;
}

void put_into(Model& model, const Extent& extent) {
  const bool compressed = extent.compression() != nullptr;
  for (std::uint32_t i = 0; i < extent.block_count; ++i) {
    ModelBlock& block = model[extent.first_block + i].emplace();
    block.device_block = extent.device_block.value + (compressed ? 0 : i);
    block.stored_blocks = compressed ? extent.stored_blocks() : 1;
    block.compressed = compressed;
    block.shared = extent.shared;
    block.corrupt = extent.corrupt;
    block.origin = extent;
    block.checksum = extent.checksums[compressed ? 0 : i];
  }
}

void expect_same(const IndexLeaf& leaf, const Model& model) {
  ASSERT_TRUE(leaf.validate().has_value());
  for (std::uint32_t i = 0; i < kLeafBlocks; ++i) {
    const auto location = leaf.lookup(i);
    ASSERT_EQ(location.has_value(), model[i].has_value()) << "block " << i;
    if (!location) continue;
    const ModelBlock& block = *model[i];
    const Extent& extent = *location->extent;
    ASSERT_EQ(location->device_block.value, block.device_block);
    ASSERT_EQ(location->checksum, block.checksum);
    ASSERT_EQ(extent.shared, block.shared);
    ASSERT_EQ(extent.corrupt, block.corrupt);
    ASSERT_EQ(extent.lane_sequence, block.origin.lane_sequence);
    ASSERT_EQ(extent.pg_epoch, block.origin.pg_epoch);
    ASSERT_EQ(extent.pg_sequence, block.origin.pg_sequence);
    ASSERT_EQ(extent.change_generation, block.origin.change_generation);
    if (block.compressed) {
      ASSERT_EQ(extent.compression()->unit_offset + (i - extent.first_block),
                i - block.origin.first_block);
    }
  }
}

void expect_runs_cover(const IndexLeaf& leaf, const Model& model, std::uint32_t first,
                       std::uint32_t count) {
  std::uint32_t at = first;
  for (const LeafRun& piece : leaf.runs(first, count)) {
    ASSERT_EQ(piece.first_block, at);
    for (std::uint32_t i = 0; i < piece.block_count; ++i) {
      const auto& block = model[at + i];
      ASSERT_EQ(piece.kind == LeafRunKind::hole, !block.has_value());
      if (!block) continue;
      ASSERT_EQ(piece.corrupt, block->corrupt);
      ASSERT_EQ(piece.kind == LeafRunKind::unit, block->compressed);
      const std::uint64_t offset = block->compressed ? 0 : i;
      ASSERT_EQ(piece.device_block.value + offset, block->device_block);
    }
    at += piece.block_count;
  }
  ASSERT_EQ(at, first + count);
}

// A place for [first, first + count): fresh, or where those blocks are already (in place).
std::uint64_t choose_place(Rng& rng, const Model& model, std::uint32_t first, std::uint32_t count,
                           std::uint64_t& fresh) {
  if (rng.chance(0.4) && model[first] && !model[first]->compressed) {
    return model[first]->device_block;
  }
  const std::uint64_t place = fresh;
  fresh += count + rng.below(3);
  return place;
}

// What a change of `before` into `after` must return, compared with what it returned.
void expect_freed(const Model& before, const Model& after, const FreedRuns& freed) {
  Names names = names_of(before);
  for (const auto& [name, count] : names_of(after)) {
    // A block that is newly named, or changes between shared and unshared, gives nothing back.
    for (int i = 0; i < count; ++i) {
      if (names[name] > 0) {
        --names[name];
      } else if (names[{name.first, !name.second}] > 0) {
        --names[{name.first, !name.second}];
      }
    }
  }
  for (const FreedRun& piece : freed) {
    for (std::uint32_t i = 0; i < piece.run.blocks; ++i) {
      ASSERT_GT((names[{piece.run.start.value + i, piece.shared}]--), 0)
          << "block " << piece.run.start.value + i << " was not named, or is still";
    }
  }
  for (const auto& [name, count] : names) ASSERT_EQ(count, 0) << "leaked block " << name.first;
}

TEST(IndexLeaf, behaves_like_an_array_of_blocks) {
  // Random changes against the simplest model: no block is lost, leaked or freed while it is used.
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const double option_chance = seed % 2 == 0 ? 0.0 : 0.25;
    IndexLeaf leaf;
    Model model;
    std::uint64_t fresh = 1000;
    for (int step = 0; step < 100; ++step) {
      const auto first = static_cast<std::uint32_t>(rng.below(kLeafBlocks));
      const auto count = static_cast<std::uint32_t>(rng.between(1, kLeafBlocks - first));
      const Model before = model;
      if (rng.chance(0.7)) {
        const auto place = choose_place(rng, model, first, count, fresh);
        const Extent extent = any_extent(rng, first, count, place, option_chance);
        if (!leaf.accepts(extent)) continue;
        put_into(model, extent);
        ASSERT_NO_FATAL_FAILURE(expect_freed(before, model, leaf.put(extent)));
      } else if (rng.chance(0.7)) {
        for (std::uint32_t i = first; i < first + count; ++i) model[i].reset();
        ASSERT_NO_FATAL_FAILURE(expect_freed(before, model, leaf.remove(first, count)));
      } else {
        std::uint32_t marked = 0;
        for (std::uint32_t i = first; i < first + count; ++i) {
          if (model[i] && !std::exchange(model[i]->corrupt, true)) ++marked;
        }
        ASSERT_EQ(leaf.mark_corrupt(first, count), marked);
      }
      ASSERT_NO_FATAL_FAILURE(expect_same(leaf, model));
      ASSERT_NO_FATAL_FAILURE(expect_runs_cover(leaf, model, first, count));
    }
  }
}

TEST(IndexLeaf, refuses_extents_out_of_order_or_twice) {
  // A leaf from a disk whose checksum is right may still be nonsense.
  const auto refused = [](std::vector<Extent> extents) {
    const auto leaf = IndexLeaf::from_extents(std::move(extents));
    return !leaf && is(leaf.error(), IndexError::value_malformed);
  };
  EXPECT_FALSE(refused({plain_extent(0, 2, 100), plain_extent(2, 1, 102)}));
  EXPECT_TRUE(refused({plain_extent(2, 1, 102), plain_extent(0, 2, 100)}));
  EXPECT_TRUE(refused({plain_extent(0, 3, 100), plain_extent(2, 1, 110)}));
  EXPECT_TRUE(refused({plain_extent(0, 3, 100), plain_extent(3, 1, 102)}));
}

}  // namespace
}  // namespace sarsen
