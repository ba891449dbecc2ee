#include "dataplane/store/store.h"

#include <gmock/gmock.h>

#include "dataplane/base/crc32c.h"
#include "dataplane/runtime/when_all.h"
#include "tests/model/payload.h"
#include "tests/sim/run_task.h"
#include "tests/sim/sim_disk.h"
#include "tests/sim/sim_node.h"
#include "tests/sim/simulator.h"
#include "tests/unit/store/open_store_fixture.h"

namespace sarsen {
namespace {

TEST_F(StoreTest, an_unwritten_object_reads_as_zeros) {
  EXPECT_EQ(read(5, 1000, 3), (Ids{0, 0, 0}));
}

TEST_F(StoreTest, reads_what_was_written_before_and_after_it_went_home) {
  ASSERT_TRUE(write(1, 3, 2, 7));
  EXPECT_EQ(read(1, 2, 4), (Ids{0, 7, 7, 0}));
  checkpoint();
  EXPECT_EQ(read(1, 2, 4), (Ids{0, 7, 7, 0}));
  ASSERT_TRUE(write(1, 4, 2, 8));
  EXPECT_EQ(read(1, 2, 5), (Ids{0, 7, 8, 8, 0}));
  checkpoint();
  EXPECT_EQ(read(1, 2, 5), (Ids{0, 7, 8, 8, 0}));
  expect_balanced();
}

TEST_F(StoreTest, keeps_acknowledged_writes_through_power_loss_at_each_stage) {
  ASSERT_TRUE(write(1, 0, 1, 1));
  power_cycle();
  EXPECT_EQ(read(1, 0, 1), (Ids{1}));
  ASSERT_TRUE(write(1, 1, 64, 2));  // a large one
  power_cycle();
  EXPECT_EQ(read(1, 0, 3), (Ids{1, 2, 2}));
  checkpoint();
  power_cycle();
  EXPECT_EQ(read(1, 0, 3), (Ids{1, 2, 2}));
  EXPECT_EQ(read(1, 63, 3), (Ids{2, 2, 0}));
  expect_balanced();
}

TEST_F(StoreTest, zeroed_blocks_read_as_zeros_and_give_their_space_back) {
  ASSERT_TRUE(write(1, 0, 32, 1));
  checkpoint();
  const auto before = store->stats().space.data_blocks;
  ASSERT_TRUE(run(store->zero(object(1), {.first_block = 4, .block_count = 20}, {})));
  EXPECT_EQ(read(1, 3, 3), (Ids{1, 0, 0}));
  power_cycle();
  EXPECT_EQ(read(1, 3, 3), (Ids{1, 0, 0}));
  checkpoint();
  EXPECT_EQ(read(1, 23, 2), (Ids{0, 1}));
  EXPECT_EQ(store->stats().space.data_blocks, before - 20);
  expect_balanced();
}

TEST_F(StoreTest, a_removed_object_is_gone_and_can_be_written_again) {
  ASSERT_TRUE(write(1, 0, 32, 1));
  ASSERT_TRUE(write(1, 500, 1, 2));
  checkpoint();
  ASSERT_TRUE(write(1, 501, 1, 3));
  ASSERT_TRUE(run(store->remove(object(1), {})));
  ASSERT_TRUE(write(1, 1, 1, 4));
  EXPECT_EQ(read(1, 0, 3), (Ids{0, 4, 0}));
  EXPECT_EQ(read(1, 500, 2), (Ids{0, 0}));
  power_cycle();
  EXPECT_EQ(read(1, 0, 3), (Ids{0, 4, 0}));
  checkpoint();
  EXPECT_EQ(read(1, 0, 3), (Ids{0, 4, 0}));
  EXPECT_EQ(store->stats().space.data_blocks, 1u);
  expect_balanced();
}

// The journal is 8 segments of 64 KiB: this goes round it many times.
TEST_F(StoreTest, the_journal_wraps_while_writes_go_on) {
  for (std::uint64_t id = 1; id <= 600; ++id) {
    ASSERT_TRUE(write(id % 3, static_cast<std::uint32_t>(id * 7 % 100), 1, id)) << id;
  }
  EXPECT_GT(store->stats().checkpoints, 2u);
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::uint64_t> want;
  for (std::uint64_t id = 1; id <= 600; ++id) {
    want[{id % 3, static_cast<std::uint32_t>(id * 7 % 100)}] = id;
  }
  power_cycle();
  for (const auto& [place, id] : want) EXPECT_EQ(read(place.first, place.second, 1), (Ids{id}));
  checkpoint();
  for (const auto& [place, id] : want) EXPECT_EQ(read(place.first, place.second, 1), (Ids{id}));
  expect_balanced();
}

Task<std::vector<Result<void>>> all_of(Executor* executor, std::vector<Task<Result<void>>> tasks) {
  co_return co_await when_all(*executor, std::move(tasks));
}

// The large write waits for its extents before it has a sequence: what was called after it must not
// get ahead.
TEST_F(StoreTest, overlapping_writes_take_effect_in_the_order_of_their_calls) {
  std::vector<Task<Result<void>>> tasks;
  tasks.push_back(write_task(store.get(), 1, 0, data_of(1, 0, 16, 1)));
  tasks.push_back(write_task(store.get(), 1, 4, data_of(1, 4, 2, 2)));
  tasks.push_back(store->zero(object(1), {.first_block = 5, .block_count = 3}, {}));
  tasks.push_back(write_task(store.get(), 1, 7, data_of(1, 7, 1, 3)));
  for (const auto& done : run(all_of(&node.env().executor, std::move(tasks)))) ASSERT_TRUE(done);
  const Ids wanted{1, 2, 0, 0, 3, 1};
  EXPECT_EQ(read(1, 3, 6), wanted);
  power_cycle();
  EXPECT_EQ(read(1, 3, 6), wanted);
  checkpoint();
  EXPECT_EQ(read(1, 3, 6), wanted);
}

// A removal that comes together with the writes before it takes them along: nothing of the object
// is in the index when power fails after the checkpoint.
TEST_F(StoreTest, a_removal_destaged_with_the_writes_before_it_leaves_nothing) {
  ASSERT_TRUE(write(1, 15, 3, 1));
  ASSERT_TRUE(run(store->remove(object(1), {})));
  checkpoint();
  power_cycle();
  EXPECT_EQ(read(1, 15, 3), (Ids{0, 0, 0}));
  EXPECT_EQ(store->stats().space.data_blocks, 0u);
  expect_balanced();
}

// Rot at home is found by the checksum in the index, never returned.
TEST_F(StoreTest, finds_rot_at_home_and_heals_it_by_an_overwrite) {
  ASSERT_TRUE(write(1, 0, 1, 1));
  checkpoint();
  const auto& geometry = store->superblock().geometry;
  // Rot every chunk's first blocks: one of them is the home.
  std::vector<std::byte> block(kBlockBytes);
  const auto payload = data_of(1, 0, 1, 1);
  std::uint64_t home = 0;
  for (std::uint64_t at = geometry.chunks_start().value; at < geometry.device_bytes - kBlockBytes;
       at += kBlockBytes) {
    disk.current().read(at, block);
    if (block == payload) home = at;
  }
  ASSERT_NE(home, 0u);
  disk.rot(ByteOffset(home), kBlockBytes);
  EXPECT_EQ(read(1, 0, 1), (Ids{~std::uint64_t{0}}));
  std::vector<std::byte> into(kBlockBytes);
  const auto strict = run(store->read(object(1), 0, into));
  ASSERT_FALSE(strict);
  EXPECT_TRUE(is(strict.error(), StoreError::corrupt_block));
  const auto scrubbed = run(store->scrub());
  ASSERT_TRUE(scrubbed);
  EXPECT_EQ(scrubbed->corrupt_found, 1u);
  ASSERT_TRUE(write(1, 0, 1, 2));
  checkpoint();
  EXPECT_EQ(read(1, 0, 1), (Ids{2}));
  EXPECT_EQ(run(store->scrub())->corrupt_found, 0u);
}

TEST_F(StoreTest, refuses_data_that_was_damaged_on_its_way) {
  auto data = data_of(1, 0, 1, 1);
  const std::uint32_t wrong = crc32c(data) ^ 1;
  const auto refused = run(store->write({.object = object(1),
                                         .first_block = 0,
                                         .data = data,
                                         .checksums = std::span(&wrong, 1),
                                         .stamp = {}}));
  ASSERT_FALSE(refused);
  EXPECT_TRUE(is(refused.error(), StoreError::corrupt_block));
  EXPECT_EQ(read(1, 0, 1), (Ids{0}));
}

// Full: no_space is a value, overwrite and trim go on, and what was freed can be written again.
TEST_F(StoreTest, a_full_device_refuses_new_blocks_and_nothing_else) {
  std::uint64_t id = 1;
  std::uint64_t number = 0;
  Result<void> last;
  for (; number < 20; ++number) {
    for (std::uint32_t first = 0; first < kBlocksPerObject && last; first += 64) {
      last = write(number, first, 64, id++);
    }
    if (!last) break;
  }
  ASSERT_FALSE(last);
  EXPECT_TRUE(is(last.error(), StoreError::no_space)) << last.error().message();
  // Fill the rest block by block.
  for (std::uint32_t first = 0; first < 2000; ++first) {
    if (!write(number + 1, first % 1024, 1, id)) break;
  }
  for (int round = 0; round < 300; ++round) {
    const auto done = write(0, static_cast<std::uint32_t>(round * 5 % 512), 1, id);
    ASSERT_TRUE(done) << round << ": " << done.error().message();
    EXPECT_EQ(read(0, static_cast<std::uint32_t>(round * 5 % 512), 1), (Ids{id}));
    ++id;
  }
  const auto large = write(0, 0, 64, id);
  ASSERT_TRUE(large) << large.error().message();
  EXPECT_EQ(read(0, 0, 2), (Ids{id, id}));
  checkpoint();
  expect_balanced();
  ASSERT_TRUE(run(store->remove(object(0), {})));
  checkpoint();
  ASSERT_TRUE(write(30, 0, 64, ++id));
  power_cycle();
  EXPECT_EQ(read(30, 0, 1), (Ids{id}));
  checkpoint();
  expect_balanced();
}

// The extents that a large write replaces are free only after a batch and a checkpoint: want of
// space brings both about, and the data does not take the way through the journal.
TEST_F(StoreTest, large_overwrites_of_a_nearly_full_device_wait_for_the_space_that_they_free) {
  std::uint64_t id = 1;
  const std::uint64_t total = store->stats().space.total_blocks;
  std::uint64_t written = 0;
  for (; written + 64 <= total * 11 / 20; written += 64, ++id) {
    ASSERT_TRUE(write(written / kBlocksPerObject, written % kBlocksPerObject, 64, id));
  }
  const std::uint64_t before = store->stats().journal_bytes_written;
  for (int round = 0; round < 6; ++round) {
    for (std::uint64_t first = 0; first < written; first += 64, ++id) {
      const auto done = write(first / kBlocksPerObject, first % kBlocksPerObject, 64, id);
      ASSERT_TRUE(done) << round << ": " << done.error().message();
    }
  }
  const std::uint64_t through_journal = store->stats().journal_bytes_written - before;
  EXPECT_LT(through_journal * 8, 6 * written * kBlockBytes);
  checkpoint();
  expect_balanced();
}

// A failed device takes no more writes, and still reads.
TEST_F(StoreTest, reads_on_after_the_device_failed_a_write) {
  ASSERT_TRUE(write(1, 0, 1, 1));
  sim.set_rate(sim::FaultKind::d8_write_error, 1.0);
  const auto failed = write(1, 1, 1, 2);
  ASSERT_FALSE(failed);
  EXPECT_TRUE(is(failed.error(), StoreError::device_failed));
  EXPECT_EQ(read(1, 0, 1), (Ids{1}));
  EXPECT_TRUE(store->stats().read_only);
  sim.set_rate(sim::FaultKind::d8_write_error, 0);
  EXPECT_FALSE(write(1, 1, 1, 3));
  power_cycle();
  EXPECT_EQ(read(1, 0, 1), (Ids{1}));
  ASSERT_TRUE(write(1, 1, 1, 4));
}

// A device that does not answer says nothing about its contents: taken for damage, an unplugged
// device would be given up, and with it the only copy.
TEST_F(StoreTest, a_device_that_vanishes_while_it_is_opened_is_gone_not_corrupt) {
  ASSERT_TRUE(write(1, 0, 3, 1));
  checkpoint();
  ASSERT_TRUE(write(1, 1, 1, 2));
  power_cycle();
  bool opened = false;
  for (std::uint64_t io = 0; !opened; ++io) {
    hold_for_crash(node, std::shared_ptr<Store>(std::move(store)));
    node.crash(sim::CrashKind::process_kill);
    node.start();
    disk.vanish_after(io);
    auto result = run(Store::open(node.env(), node.disk(), node.blocking_disk(), limits));
    opened = result.has_value();
    if (opened) {
      store = *std::move(result);
      break;
    }
    EXPECT_EQ(result.error().error_class(), ErrorClass::failed)
        << "at I/O " << io << ": " << result.error().message();
    ASSERT_LT(io, 10'000u);
  }
  power_cycle();
  EXPECT_EQ(read(1, 0, 3), (Ids{1, 2, 1}));
  expect_balanced();
}

TEST_F(StoreTest, says_which_blocks_take_space) {
  ASSERT_TRUE(write(1, 10, 4, 1));
  const auto runs = run(store->allocation(object(1), {.first_block = 8, .block_count = 8}));
  ASSERT_TRUE(runs);
  ASSERT_EQ(runs->size(), 3u);
  EXPECT_EQ((*runs)[0].block_count, 2u);
  EXPECT_FALSE((*runs)[0].allocated);
  EXPECT_EQ((*runs)[1].block_count, 4u);
  EXPECT_TRUE((*runs)[1].allocated);
}

TEST_F(StoreTest, stops_and_starts_without_losing_anything) {
  for (int round = 1; round <= 5; ++round) {
    ASSERT_TRUE(write(1, static_cast<std::uint32_t>(round), 1, static_cast<std::uint64_t>(round)));
    stop();
    open();
  }
  EXPECT_EQ(read(1, 1, 5), (Ids{1, 2, 3, 4, 5}));
}

}  // namespace
}  // namespace sarsen
