#include <map>
#include <vector>

#include "dataplane/base/crc32c.h"
#include "dataplane/runtime/when_all.h"
#include "dataplane/store/error.h"
#include "dataplane/store/journal_recovery.h"
#include "dataplane/store/journal_writer.h"
#include "dataplane/store/segment_pool.h"
#include "tests/unit/store/store_fixture.h"

namespace sarsen {
namespace {

// One run of a journal on the fixture's device.
struct Journal {
  Journal(sim::SimNode& node, const Superblock& superblock, const RecoveredJournal* recovered,
          JournalLimits limits)
      : pool(node.env().executor, SegmentGeneration(superblock.run_base() | 1), 1),
        writer(node.env(), node.disk(), pool, superblock, limits, nullptr) {
    std::map<std::uint32_t, SegmentGeneration> used;
    if (recovered != nullptr) {
      for (const auto& segment : recovered->segments) used[segment.segment] = segment.generation;
    }
    for (std::uint32_t i = 0; i < superblock.geometry.segment_count; ++i) {
      if (used.contains(i)) {
        pool.add_in_use({.segment = i, .generation = used[i]});
      } else {
        pool.add_free(i);
      }
    }
    writer.start();
  }
  SegmentPool pool;
  JournalWriter writer;
};

class JournalTest : public StoreFixture {
 protected:
  ~JournalTest() override {
    if (journal_) crash();
  }

  void start(const RecoveredJournal* recovered = nullptr, JournalLimits limits = {}) {
    journal_ = std::make_unique<Journal>(node, superblock, recovered, limits);
  }
  void crash() {
    hold_for_crash(node, std::shared_ptr<Journal>(std::move(journal_)));
    node.crash(sim::CrashKind::power_loss);
    node.start();
  }
  void stop() {
    run(stop_writer(&journal_->writer));
    journal_.reset();
  }
  static Task<int> stop_writer(JournalWriter* writer) {
    co_await writer->stop();
    co_return 0;
  }

  std::vector<std::byte> data_of(std::uint64_t id, std::uint32_t blocks) const {
    std::vector<std::byte> data(std::size_t{blocks} * kBlockBytes);
    Rng rng(id);
    for (std::byte& byte : data) byte = static_cast<std::byte>(rng.next());
    return data;
  }
  Result<JournalReceipt> append(std::uint64_t id, std::uint32_t blocks = 1) {
    return run(append_one(&journal_->writer, id, data_of(id, blocks)));
  }
  static Task<Result<JournalReceipt>> append_one(JournalWriter* writer, std::uint64_t id,
                                                 std::vector<std::byte> data) {
    JournalRecord record;
    record.lane = LaneId(0);
    record.lane_sequence = LaneSequence(id);
    record.object = {.pool = PoolId(1), .family = 1, .branch = 1, .object_number = id};
    record.block_count = static_cast<std::uint32_t>(data.size() / kBlockBytes);
    for (std::uint32_t i = 0; i < record.block_count; ++i) {
      record.checksums.push_back(
          crc32c(std::span(data).subspan(std::size_t{i} * kBlockBytes, kBlockBytes)));
    }
    if (record.block_count == 0) record.kind = RecordKind::remove_object;
    co_return co_await writer->append(std::move(record), data);
  }

  RecoveredJournal recover(SegmentGeneration live_from = SegmentGeneration(0)) {
    auto recovered = run(recover_journal(node.env(), node.disk(), superblock, live_from,
                                         [](LaneId, LaneSequence) { return false; }));
    SARSEN_ASSERT(recovered.has_value(), "recovery answers");
    ++superblock.start_count;
    return *std::move(recovered);
  }
  // Writes what recovery accepted, as the store does before it reports anything.
  void record_ends(const RecoveredJournal& recovered) {
    for (const auto& record : recovered.records) {
      if (!record.unproven) continue;
      const std::uint64_t id = record.record.lane_sequence.value;
      ASSERT_TRUE(append(id, record.record.block_count));
    }
    ASSERT_TRUE(run(append_ends(&journal_->writer, recovered.ends)));
  }
  static Task<Result<JournalReceipt>> append_ends(JournalWriter* writer,
                                                  std::vector<StreamEnd> ends) {
    JournalRecord record;
    record.kind = RecordKind::stream_ends;
    record.ends = std::move(ends);
    co_return co_await writer->append(std::move(record), {});
  }

  // The data of a recovered record as it is on the device, or nothing when its checksum is wrong.
  bool data_is_good(const RecoveredRecord& recovered) {
    const auto& record = recovered.record;
    const auto want = data_of(record.lane_sequence.value, record.block_count);
    std::vector<std::byte> found(want.size());
    disk.current().read(recovered.payload.value * kBlockBytes, found);
    return found == want;
  }
  static std::vector<std::uint64_t> ids(const RecoveredJournal& recovered) {
    std::vector<std::uint64_t> found;
    for (const auto& record : recovered.records) {
      found.push_back(record.record.lane_sequence.value);
    }
    return found;
  }
  static std::vector<std::uint64_t> range(std::uint64_t first, std::uint64_t last) {
    std::vector<std::uint64_t> list;
    for (std::uint64_t id = first; id <= last; ++id) list.push_back(id);
    return list;
  }
  // The device offset of the header of the group that holds a record of one block.
  ByteOffset header_of(const JournalReceipt& receipt) const {
    return ByteOffset((receipt.payload.value - 1) * kBlockBytes);
  }

  std::unique_ptr<Journal> journal_;
};

TEST_F(JournalTest, keeps_every_acknowledged_record_through_power_loss) {
  start();
  for (std::uint64_t id = 1; id <= 20; ++id) ASSERT_TRUE(append(id, 1 + id % 3));
  crash();
  const auto recovered = recover();
  EXPECT_EQ(ids(recovered), range(1, 20));
  for (const auto& record : recovered.records) EXPECT_TRUE(data_is_good(record));
  EXPECT_TRUE(recovered.lost.empty());
}

// PAR: truncating at the first bad record would lose every acknowledged record behind it.
TEST_F(JournalTest, rebuilds_a_rotten_header_in_the_middle_from_its_echo) {
  start();
  std::vector<JournalReceipt> receipts;
  for (std::uint64_t id = 1; id <= 10; ++id) receipts.push_back(*append(id));
  crash();
  for (std::size_t victim : {0u, 4u, 7u}) {
    disk.rot(header_of(receipts[victim]), kBlockBytes);
    const auto recovered = recover();
    EXPECT_EQ(ids(recovered), range(1, 10)) << "victim " << victim;
    for (const auto& record : recovered.records) {
      EXPECT_FALSE(record.payload_lost);
      EXPECT_TRUE(data_is_good(record));
    }
  }
  EXPECT_EQ(recover().headers_rebuilt, 3u);
}

// The last group has no follower to tell rot from a torn tail; the seal is that follower.
TEST_F(JournalTest, a_seal_tells_rot_of_the_last_group_from_a_torn_tail) {
  start();
  JournalReceipt last;
  for (std::uint64_t id = 1; id <= 5; ++id) last = *append(id);
  sim.run_for(milliseconds(50));
  crash();
  disk.rot(header_of(last), kBlockBytes);
  const auto recovered = recover();
  EXPECT_EQ(ids(recovered), range(1, 5));
  EXPECT_EQ(recovered.headers_rebuilt, 1u);
}

// Rotten data is corrupt, never absent: its identity stays, the checksum tells.
TEST_F(JournalTest, keeps_the_identity_of_a_record_whose_data_rotted) {
  start();
  const auto receipt = *append(1);
  ASSERT_TRUE(append(2));
  crash();
  disk.rot(ByteOffset(receipt.payload.value * kBlockBytes), kBlockBytes);
  const auto recovered = recover();
  ASSERT_EQ(ids(recovered), range(1, 2));
  EXPECT_FALSE(data_is_good(recovered.records[0]));
}

// Two bad headers in a row lose an identity: it must be reported, not passed over.
TEST_F(JournalTest, reports_records_whose_identity_is_lost) {
  start();
  std::vector<JournalReceipt> receipts;
  for (std::uint64_t id = 1; id <= 6; ++id) receipts.push_back(*append(id));
  crash();
  disk.rot(header_of(receipts[2]), kBlockBytes);
  disk.rot(header_of(receipts[3]), kBlockBytes);
  const auto recovered = recover();
  EXPECT_EQ(ids(recovered), (std::vector<std::uint64_t>{1, 2, 4, 5, 6}));
  ASSERT_EQ(recovered.lost.size(), 1u);
  EXPECT_EQ(recovered.lost[0].first, JournalLsn(3));
  EXPECT_EQ(recovered.lost[0].end, JournalLsn(4));
}

// A sector that reads with an error is one bad block, not a bad segment.
TEST_F(JournalTest, goes_around_a_block_that_cannot_be_read) {
  start();
  std::vector<JournalReceipt> receipts;
  for (std::uint64_t id = 1; id <= 10; ++id) receipts.push_back(*append(id));
  crash();
  disk.rot(header_of(receipts[5]), 512);
  EXPECT_EQ(ids(recover()), range(1, 10));
}

Task<std::vector<Result<JournalReceipt>>> all_of(Executor* executor,
                                                 std::vector<Task<Result<JournalReceipt>>> tasks) {
  co_return co_await when_all(*executor, std::move(tasks));
}

// Records of one turn share a group, one header, one device write.
TEST_F(JournalTest, appends_of_one_turn_share_a_group) {
  start();
  std::vector<Task<Result<JournalReceipt>>> tasks;
  for (std::uint64_t id = 1; id <= 5; ++id) {
    tasks.push_back(append_one(&journal_->writer, id, data_of(id, 1)));
  }
  for (const auto& result : run(all_of(&node.env().executor, std::move(tasks)))) {
    EXPECT_TRUE(result);
  }
  EXPECT_EQ(journal_->writer.groups_written(), 1u);
  crash();
  EXPECT_EQ(ids(recover()), range(1, 5));
}

// I-JOURNAL-9: after a failed write what is on the media is unknown; nothing more is acknowledged.
TEST_F(JournalTest, fails_for_good_after_a_failed_write) {
  start();
  ASSERT_TRUE(append(1));
  sim.set_rate(sim::FaultKind::d8_write_error, 1.0);
  const auto failed = append(2);
  ASSERT_FALSE(failed);
  EXPECT_TRUE(is(failed.error(), StoreError::device_failed));
  sim.set_rate(sim::FaultKind::d8_write_error, 0);
  EXPECT_FALSE(append(3));
  crash();
  const auto recovered = recover();
  EXPECT_GE(recovered.records.size(), 1u);
  EXPECT_LE(recovered.records.size(), 2u);  // the failed write may have landed
}

// A segment is used again only when its records are released; then old groups are void.
TEST_F(JournalTest, wraps_around_and_forgets_what_was_released) {
  start();
  std::uint64_t id = 1;
  for (; id <= 100; ++id) {
    const auto receipt = append(id);
    ASSERT_TRUE(receipt) << id;
    journal_->pool.release_below(receipt->generation);
  }
  const SegmentGeneration live_from = journal_->writer.settled_below();
  crash();
  const auto recovered = recover(live_from);
  ASSERT_FALSE(recovered.records.empty());
  EXPECT_EQ(ids(recovered), range(101 - recovered.records.size(), 100));
  EXPECT_LT(recovered.records.size(), 20u);
}

// I-JOURNAL-5: what a recovery did not believe stays void, even when the media changes its mind.
// Large writes leave small records that name much: a segment full of them would be minutes of work
// for a batch, and seconds for a replay.
TEST_F(JournalTest, closes_a_segment_that_names_many_blocks) {
  const std::uint32_t enough = 3;
  JournalLimits limits;
  limits.segment_blocks_named_max = enough * kBlocksPerObject;
  start(nullptr, limits);
  JournalRecord zero;
  zero.kind = RecordKind::zero;
  zero.lane = LaneId(0);
  zero.block_count = kBlocksPerObject;
  SegmentGeneration first;
  for (std::uint32_t i = 0; i <= enough; ++i) {
    zero.lane_sequence = LaneSequence(i + 1);
    const auto receipt = run(journal_->writer.append(zero, {}));
    ASSERT_TRUE(receipt);
    if (i == 0) first = receipt->generation;
    EXPECT_EQ(receipt->generation, i < enough ? first : first.next());
  }
  EXPECT_EQ(journal_->writer.settled_below(), first.next());
  crash();
  EXPECT_EQ(ids(recover()), range(1, enough + 1));
}

TEST_F(JournalTest, a_cut_is_final_once_it_is_recorded) {
  start();
  JournalReceipt last;
  for (std::uint64_t id = 1; id <= 5; ++id) last = *append(id);
  crash();
  // The last group has no evidence behind it; a bad read of it looks like a torn tail.
  std::vector<std::byte> block(kBlockBytes);
  const std::uint64_t payload = last.payload.value * kBlockBytes;
  disk.current().read(payload, block);
  disk.rot(ByteOffset(payload), kBlockBytes);
  auto recovered = recover();
  EXPECT_EQ(ids(recovered), range(1, 4));
  EXPECT_EQ(recovered.records_rolled_back, 1u);
  start(&recovered);
  record_ends(recovered);
  ASSERT_TRUE(append(105));
  crash();

  auto image = disk.stable();
  image.write(payload, block);
  disk.set_image(std::move(image));
  recovered = recover();
  EXPECT_EQ(ids(recovered), (std::vector<std::uint64_t>{1, 2, 3, 4, 105}));
}

// Crash loops: each recovery sees what the first one saw.
TEST_F(JournalTest, recovery_repeats_itself) {
  start();
  for (std::uint64_t id = 1; id <= 12; ++id) ASSERT_TRUE(append(id));
  crash();
  for (int round = 0; round < 4; ++round) {
    const auto recovered = recover();
    EXPECT_EQ(ids(recovered), range(1, 12));
    start(&recovered);
    record_ends(recovered);
    crash();
  }
}

TEST_F(JournalTest, stops_cleanly_with_everything_sealed) {
  start();
  for (std::uint64_t id = 1; id <= 3; ++id) ASSERT_TRUE(append(id));
  stop();
  const auto recovered = recover();
  EXPECT_EQ(ids(recovered), range(1, 3));
  EXPECT_EQ(recovered.records_rolled_back, 0u);
}

}  // namespace
}  // namespace sarsen
