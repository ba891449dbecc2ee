// Power loss at every write and flush of a workload over table, files and database.
#include <functional>
#include <map>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/store/metadata/db_fixture.h"

namespace sarsen::test {
namespace {

// Everything the database holds, by family and key; and the lanes' chunks, one letter each.
struct Contents {
  std::map<std::pair<MetadataFamily, std::string>, std::string> entries;
  std::string lanes;
  bool operator==(const Contents&) const = default;
};

std::string lanes_of(const DeviceTable& table) {
  std::string letters;
  for (const ChunkOwner& owner : table.owners()) {
    letters += owner.is_lane() ? static_cast<char>('0' + owner.lane_id().value) : '.';
  }
  return letters;
}

Contents contents_of(const DbProcess& process) {
  Contents contents;
  for (std::size_t i = 0; i < kMetadataFamilies; ++i) {
    const auto family = static_cast<MetadataFamily>(i);
    auto cursor = process.db->cursor(family, "", "");
    for (; cursor.valid(); cursor.next()) {
      contents.entries.emplace(std::pair(family, std::string(cursor.key())), cursor.value());
    }
    EXPECT_TRUE(cursor.status());
  }
  contents.lanes = lanes_of(*process.zone.table);
  return contents;
}

// Free and owned units are all units of the zone: nothing leaks, nothing is owned twice.
void expect_space_balances(const DbProcess& process) {
  const TableState state = process.zone.table->state();
  const auto checked = state.check();
  ASSERT_TRUE(checked) << checked.error().message();
  std::uint64_t owned = 0;
  for (const auto& [name, file] : state.files) {
    for (const auto& copy : file.copies) {
      for (const UnitExtent& extent : copy) owned += extent.count;
    }
  }
  const std::uint64_t free = process.zone.files->stats().free_bytes / state.unit_bytes;
  EXPECT_EQ(owned + free, state.count(ChunkOwner::metadata()) * state.units_per_chunk());
}

// Runs a workload on a recording disk and remembers what was acknowledged after which event.
class Workload {
 public:
  explicit Workload(const TableGeometry& geometry) : geometry_(geometry) {
    EXPECT_TRUE(DeviceTable::format(disk_, geometry_));
    auto options = small_options();
    options.create = true;
    EXPECT_TRUE(DbProcess::start(disk_, geometry_, options));
    disk_.record();
    restart();
    acknowledge();
  }

  void restart() {
    process_ = DbProcess();
    auto process = DbProcess::start(disk_, geometry_, small_options());
    ASSERT_TRUE(process);
    process_ = *std::move(process);
    expect_ = flushed_;
    expect_.lanes = lanes_of(*process_.zone.table);
  }
  void put(MetadataFamily family, int key, int round) {
    batch_.put(family, test_key(key), test_value(key, round));
    expect_.entries[{family, test_key(key)}] = test_value(key, round);
  }
  void remove_range(int begin, int end) {
    batch_.remove_range(MetadataFamily::index, test_key(begin), test_key(end));
    std::erase_if(expect_.entries, [&](const auto& entry) {
      const auto& [family, key] = entry.first;
      return family == MetadataFamily::index && key >= test_key(begin) && key < test_key(end);
    });
  }
  void write() {
    ASSERT_TRUE(process_.db->write(batch_));
    batch_.clear();
  }
  void flush() {
    write();
    ASSERT_TRUE(process_.db->flush());
    flushed_ = expect_;
    acknowledge();
  }
  bool merge_step() {
    const auto step = process_.db->compact_step();
    EXPECT_TRUE(step);
    return step->worked;
  }
  void grant(LaneId lane) {
    ASSERT_TRUE(process_.zone.table->grant_chunk(ChunkOwner::lane(lane)));
    change_lanes();
  }
  void give_back(std::uint32_t chunk, LaneId lane) {
    ASSERT_TRUE(process_.zone.table->return_chunk(ChunkIndex(chunk), ChunkOwner::lane(lane)));
    change_lanes();
  }

  MemoryDisk& disk() { return disk_; }
  const TableGeometry& geometry() const { return geometry_; }
  // What may be there after power loss at event `count`: the last acknowledged, or the next.
  std::vector<Contents> allowed(std::size_t count) const {
    std::vector<Contents> allowed;
    for (const auto& [at, contents] : acknowledged_) {
      if (at < count) {
        allowed = {contents};
      } else {
        allowed.push_back(contents);
        break;
      }
    }
    return allowed;
  }

 private:
  void change_lanes() {
    expect_.lanes = flushed_.lanes = lanes_of(*process_.zone.table);
    acknowledge();
  }
  void acknowledge() {
    flushed_.lanes = lanes_of(*process_.zone.table);
    acknowledged_.emplace_back(disk_.events().size(), flushed_);
  }

  const TableGeometry geometry_;
  MemoryDisk disk_{8 * kMiB};
  DbProcess process_;
  MetadataBatch batch_;
  Contents expect_;
  Contents flushed_;
  std::vector<std::pair<std::size_t, Contents>> acknowledged_;
};

// Flushes, merges into the bottom and into the middle, drains, removes ranges, moves chunks, wraps
// the table's regions, restarts.
void run(Workload& work) {
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 25; ++i) work.put(MetadataFamily::index, (i * 7 + round * 11) % 120, round);
    work.put(MetadataFamily::allocator, round, round);
    work.put(MetadataFamily::meta, 0, round);
    if (round == 6) work.remove_range(20, 40);
    work.flush();
    work.grant(LaneId(static_cast<std::uint32_t>(round % 3)));
    if (round == 3 || round == 7) {
      while (work.merge_step()) {
      }
    }
    if (round == 5) {
      work.put(MetadataFamily::index, 1, 99);  // never flushed
      work.write();
      work.restart();
    }
  }
  work.merge_step();
}

class CrashSweep {
 public:
  explicit CrashSweep(Workload& work) : work_(work) {}

  void run(std::size_t count, PowerLoss loss) {
    SCOPED_TRACE("power loss at event " + std::to_string(count) + ", kind " +
                 std::to_string(static_cast<int>(loss)));
    MemoryDisk disk(image_after_power_loss(work_.disk().recorded_start(), work_.disk().events(),
                                           count, loss, rng_));
    disk.record();
    Contents found;
    {
      auto process = DbProcess::start(disk, work_.geometry(), small_options());
      ASSERT_TRUE(process) << process.error().message();
      found = contents_of(*process);
      expect_space_balances(*process);
      ++states_;
    }
    const auto allowed = work_.allowed(count);
    EXPECT_NE(std::ranges::find(allowed, found), allowed.end())
        << found.entries.size() << " entries, lanes " << found.lanes;
    if (rng_.chance(0.08)) crash_again(disk, found, allowed);
    if (rng_.chance(0.15)) go_on(disk);
  }
  int states() const { return states_; }

 private:
  // Power is lost while the recovery runs. One that ended has told its state, so the next must find
  // the same; one that was cut off has told nothing: a record that it took for torn may be whole
  // again when what it wrote over it is torn in turn.
  template <typename States>
  void crash_again(const MemoryDisk& first, const Contents& found, const States& allowed) {
    for (std::size_t count = 0; count <= first.events().size(); ++count) {
      const PowerLoss loss = kPowerLosses[rng_.below(kPowerLosses.size())];
      MemoryDisk disk(
          image_after_power_loss(first.recorded_start(), first.events(), count, loss, rng_));
      auto process = DbProcess::start(disk, work_.geometry(), small_options());
      ASSERT_TRUE(process) << "again at " << count << ": " << process.error().message();
      const Contents again = contents_of(*process);
      const bool ended = count == first.events().size();
      EXPECT_TRUE(again == found || (!ended && std::ranges::find(allowed, again) != allowed.end()))
          << "again at " << count;
      ++states_;
    }
  }
  // The recovered database must be as good as a new one.
  void go_on(MemoryDisk& disk) {
    auto process = DbProcess::start(disk, work_.geometry(), small_options());
    ASSERT_TRUE(process);
    for (int round = 0; round < 5; ++round) {
      MetadataBatch batch;
      for (int key = 0; key < 40; ++key) {
        batch.put(MetadataFamily::index, test_key(key), test_value(key, round));
      }
      ASSERT_TRUE(process->db->write(batch));
      ASSERT_TRUE(process->db->flush());
      ASSERT_TRUE(process->db->compact_step());
    }
    const Contents before = contents_of(*process);
    expect_space_balances(*process);
    *process = DbProcess();
    process = DbProcess::start(disk, work_.geometry(), small_options());
    ASSERT_TRUE(process);
    EXPECT_TRUE(contents_of(*process) == before);
  }

  Workload& work_;
  Rng rng_{11};
  int states_ = 0;
};

struct MetadataPowerLoss : ::testing::TestWithParam<PowerLoss> {};

TEST_P(MetadataPowerLoss, leaves_the_state_of_some_flush) {
  // The index is rebuilt from nothing else: what flush() acknowledged must be there, whole, and the
  // chunks of lanes must be theirs, whenever power goes.
  Workload work(small_geometry());
  run(work);
  CrashSweep sweep(work);
  const std::size_t events = work.disk().events().size();
  EXPECT_GT(events, 300u);
  for (std::size_t count = 0; count <= events && !HasFailure(); ++count) {
    sweep.run(count, GetParam());
  }
  RecordProperty("crash_states", sweep.states());
  std::printf("%zu events, %d crash states\n", events, sweep.states());
}

INSTANTIATE_TEST_SUITE_P(Kinds, MetadataPowerLoss, ::testing::ValuesIn(kPowerLosses));

TEST(MetadataCrash, creation_can_be_repeated_after_power_loss_anywhere) {
  // A format that was interrupted is done again.
  const TableGeometry geometry = small_geometry();
  MemoryDisk disk(8 * kMiB);
  disk.record();
  ASSERT_TRUE(DeviceTable::format(disk, geometry));
  const std::size_t formatted = disk.events().size();
  auto options = small_options();
  options.create = true;
  ASSERT_TRUE(DbProcess::start(disk, geometry, options));
  Rng rng(5);
  for (std::size_t count = 0; count <= disk.events().size(); ++count) {
    for (const PowerLoss loss : kPowerLosses) {
      MemoryDisk after(
          image_after_power_loss(disk.recorded_start(), disk.events(), count, loss, rng));
      if (count <= formatted) ASSERT_TRUE(DeviceTable::format(after, geometry));
      auto process = DbProcess::start(after, geometry, options);
      ASSERT_TRUE(process) << count << ": " << process.error().message();
      EXPECT_TRUE(contents_of(*process).entries.empty());
    }
  }
}

}  // namespace
}  // namespace sarsen::test
