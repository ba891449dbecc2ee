#include "tests/sim/workloads/store.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "dataplane/base/crc32c.h"
#include "dataplane/runtime/scope.h"
#include "dataplane/store/store.h"
#include "tests/model/block_model.h"
#include "tests/model/payload.h"
#include "tests/model/placed_bytes.h"
#include "tests/sim/nemesis.h"
#include "tests/sim/run_task.h"
#include "tests/sim/sim_disk.h"

namespace sarsen::sim {
namespace {

using enum FaultKind;

constexpr std::uint64_t kFamily = 1;
constexpr std::uint32_t kObjects = 4;
constexpr std::uint32_t kWindow = 48;        // blocks of each object that are used: three leaves
constexpr std::uint32_t kWindowStart = 500;  // not at a leaf's edge
constexpr std::uint32_t kBlocks = kObjects * kWindow;
constexpr int kClients = 6;
// Attempts to open a device that broke promises before it is taken for lost and formatted anew.
constexpr std::uint64_t kOpensOfBrokenDevice = 4;
// How often faults become rarer because no opening comes to its end.
constexpr std::uint32_t kRestsMax = 10;

// What a store on one copy can still promise, after what its device did.
enum class Trust : std::uint8_t {
  phantoms_only,  // nothing that was never written to the block; which version, nobody can tell
  right_or_reported,
  whole,  // everything
};

class StoreWorkload;

// What runs on the node: formats a new device, opens the store, reads everything back, serves
// clients.
class StoreProgram final : public Program {
 public:
  StoreProgram(StoreWorkload& workload, SimNode& node)
      : workload_(workload), node_(node), scope_(node.env().executor) {
    scope_.spawn(run());
  }
  Store* store() { return store_.get(); }

 private:
  struct Place {
    ObjectKey object;
    std::uint32_t block = 0;
    std::uint64_t index = 0;  // of the first block in the model
    std::uint32_t count = 0;
  };

  Task<void> run();
  Task<bool> open();
  void judge_refusal(const Error& error);
  Task<void> client();
  Task<void> write(Place place);
  Task<void> zero(Place place);
  Task<void> remove(std::uint64_t object);
  Task<bool> read(Place place);
  Task<void> look_closely();
  void look_for_phantoms(Place place, std::span<const std::byte> bytes,
                         const std::vector<std::uint32_t>& corrupt);
  void ended(model::WriteId id, const Result<void>& result);
  // A failed device, or one that answers nothing: the process ends and starts again.
  void die();
  Place draw_place(std::uint32_t count_max);

  StoreWorkload& workload_;
  SimNode& node_;
  std::unique_ptr<Store> store_;
  Scope scope_;
};

class StoreWorkload final : public Workload {
 public:
  explicit StoreWorkload(WorkloadContext context)
      : simulator(context.simulator),
        rng(simulator.split_rng()),
        disk(simulator.add_disk({.size_bytes = kDeviceBytes,
                                 .volatile_cache = rng.chance(0.8),
                                 .cache_bytes_max = rng.chance(0.5) ? 64 * kKiB : 4 * kMiB})),
        node(simulator.add_node({.disks = {&disk}})),
        model(image, kBlocks),
        operations_(context.operations),
        beyond_guarantees_(rng.chance(0.25)),
        nemesis_(simulator, {.tick = milliseconds(20), .down_max = milliseconds(20)}) {
    draw_limits();
    disk.set_may_spoil([this](FaultKind kind, ByteOffset offset, std::uint64_t size) {
      return may_spoil(kind, offset, size);
    });
    node.set_factory([this](SimNode& started) {
      end_incarnation();
      auto program = std::make_unique<StoreProgram>(*this, started);
      program_ = program.get();
      return program;
    });
  }

  void run() override {
    node.start();
    simulator.run_until([this] { return formatted; }, seconds(100));
    nemesis_.start();
    simulator.run_until([this] { return done_ >= operations_; }, seconds(100'000));
    nemesis_.stop();
    simulator.set_faults_on(false);
    // Liveness: with no new faults the store opens, reads everything, and every block has one
    // owner.
    if (node.up()) node.crash(CrashKind::power_loss);
    const std::uint64_t before = verified;
    const bool verified_again = simulator.run_until(
        [this, before] { return nemesis_.quiet() && verified > before; }, seconds(1000));
    if (done_ < operations_) simulator.fail("operations do not complete");
    if (!verified_again) {
      simulator.fail("with faults off, the store does not come up: " + last_open_error);
    }
    if (node.up()) node.crash(CrashKind::process_kill);
    program_ = nullptr;
  }

  std::uint64_t operations_done() const override { return done_; }
  void operation_done() { ++done_; }
  bool finished() const { return done_ >= operations_; }

  // Operations that a crash cut off have an unknown outcome.
  void end_incarnation() {
    for (const model::WriteId id : open_writes) model.unknown(id);
    for (const model::ReadId id : open_reads) model.forget_read(id);
    open_writes.clear();
    open_reads.clear();
    program_ = nullptr;
  }
  // For the next incarnation: the device is taken for lost, and formatted as a new one.
  void forget_device() {
    model = model::BlockModel(++image, kBlocks);
    formatted = must_format = false;
    trust = Trust::whole;
    opens_failed = 0;
    disk.forgive();
  }
  // Whether a `corrupt` answer can be the device's doing.
  bool device_spoilt_something() const {
    return disk.ledger().any_spoilt() || !disk.ledger().history().empty();
  }

  Simulator& simulator;
  Rng rng;
  SimDisk& disk;
  SimNode& node;
  std::uint64_t image = 1;  // a new one for each format: older data is another's
  model::BlockModel model;
  Trust trust = Trust::whole;
  bool must_format = false;
  std::uint64_t replacements_seen = 0;
  FormatOptions format_options;
  StoreLimits limits;
  StoreGeometry geometry;
  bool formatted = false;
  std::uint64_t verified = 0;  // how often all blocks were read after a start
  std::string last_open_error;
  std::uint64_t opens_failed = 0;  // in a row
  std::uint32_t rests_given = 0;
  std::vector<model::WriteId> open_writes;
  std::vector<model::ReadId> open_reads;

 private:
  static constexpr std::uint64_t kDeviceBytes = 8 * kMiB;

  // Everything small, so that the journal wraps, the index merges and space runs out.
  void draw_limits() {
    format_options.sizes = {.journal_bytes = rng.between(5, 10) * 64 * kKiB,
                            .segment_bytes = 64 * kKiB,
                            .chunk_bytes = 64 * kKiB,
                            .table_region_bytes = 128 * kKiB,
                            .lane_count = static_cast<std::uint32_t>(rng.between(1, 3))};
    limits.journal.groups_in_flight_max = static_cast<std::uint32_t>(rng.between(1, 4));
    limits.journal.group_records_max = static_cast<std::uint32_t>(rng.between(1, 8));
    limits.journal.group_payload_blocks_max = static_cast<std::uint32_t>(rng.between(1, 10));
    limits.leaf_cache_bytes = rng.chance(0.5) ? 4 * kKiB : 1 * kMiB;
    limits.metadata_cache_bytes =
        0;  // RocksDB charges a cache by what malloc gave, which may differ
    limits.destage_segments_max = static_cast<std::uint32_t>(rng.between(1, 3));
    limits.destage_start_percent = static_cast<std::uint32_t>(rng.between(10, 80));
    limits.checkpoint_percent = static_cast<std::uint32_t>(rng.between(5, 60));
    limits.idle_destage_after = milliseconds(static_cast<std::int64_t>(rng.between(5, 500)));
    limits.leaves_per_turn = static_cast<std::uint32_t>(rng.between(1, 40));
  }

  void lower_trust(Trust to) { trust = std::min(trust, to); }

  // Home data always, and the second mirror of the device table: the store lives on. The rest is
  // spoilt in some seeds only: one copy cannot hide it, only report it, and not all of it. A
  // journal that rots at its end looks like a torn one; a write that was lost, a stale read, a
  // flush that lied and a device as it was long ago carry valid checksums.
  bool may_spoil(FaultKind kind, ByteOffset offset, std::uint64_t size) {
    const bool lies = kind == d10_misdirected_write || kind == d11_misdirected_read ||
                      kind == d12_lost_write || kind == d13_stale_read;
    if (kind == d15_device_vanishes || kind == d16_flush_lies) {
      if (beyond_guarantees_) lower_trust(Trust::phantoms_only);
      return beyond_guarantees_;
    }
    if (!formatted) return false;
    const std::uint64_t end = offset.value + size;
    const bool chunks =
        offset.value >= geometry.chunks_start().value && end <= geometry.table_region(0, 1).value;
    const bool journal = end > geometry.segment(0).value && end <= geometry.chunks_start().value;
    if (chunks) {
      Store* store = program_ != nullptr ? program_->store() : nullptr;
      if (store != nullptr && store->is_lane_space(offset, size)) return true;
    } else if (!journal) {
      // The table asks with its lock held: nothing here may ask the table, also not for the place
      // where a misdirected write would go.
      if (kind == d10_misdirected_write) return false;
      // A record of the table does not name its region, so that a misdirected read of one mirror
      // can pass for newer records (README.md).
      const bool misdirects = kind == d12_lost_write || kind == d11_misdirected_read;
      if (!misdirects && in_second_table_mirror(offset, size)) return true;
    }
    if (!beyond_guarantees_) return false;
    lower_trust(lies || journal ? Trust::phantoms_only : Trust::right_or_reported);
    return true;
  }
  bool in_second_table_mirror(ByteOffset offset, std::uint64_t size) const {
    const std::uint64_t start = geometry.table_region(0, 1).value;
    return offset.value >= start && offset.value + size <= start + 2 * geometry.table_region_bytes;
  }

  std::uint64_t operations_;
  std::uint64_t done_ = 0;
  const bool beyond_guarantees_;
  StoreProgram* program_ = nullptr;
  Nemesis nemesis_;
};

void StoreProgram::die() {
  if (!node_.doomed()) node_.crash(CrashKind::process_kill);
}

Task<bool> StoreProgram::open() {
  Env& env = node_.env();
  if (workload_.must_format) workload_.forget_device();
  if (!workload_.formatted) {
    auto made =
        co_await Store::format(env, node_.disk(), node_.blocking_disk(), workload_.format_options);
    if (!made) {
      workload_.last_open_error = made.error().message();
      co_return false;
    }
    workload_.formatted = true;
    workload_.geometry = made->geometry;
  }
  auto opened = co_await Store::open(env, node_.disk(), node_.blocking_disk(), workload_.limits);
  if (!opened) {
    judge_refusal(opened.error());
    co_return false;
  }
  workload_.opens_failed = 0;
  store_ = *std::move(opened);
  workload_.model.recovered();
  // Another device, or the same as it was long ago: whoever knows its start count takes it for a
  // blank one (rule R5). Here it is enough that the store did not die of it.
  const std::uint64_t replacements = workload_.disk.times_replaced();
  if (std::exchange(workload_.replacements_seen, replacements) != replacements) {
    workload_.must_format = true;
    co_return false;
  }
  co_return true;
}

void StoreProgram::judge_refusal(const Error& error) {
  workload_.last_open_error = error.message();
  // "It is damaged", "it is no store": only of a device that did spoil something.
  const ErrorClass blames = error.error_class();
  if ((blames == ErrorClass::corrupt || blames == ErrorClass::invalid) &&
      !workload_.device_spoilt_something()) {
    workload_.simulator.fail("open: " + error.message());
  }
  ++workload_.opens_failed;
  if (workload_.trust != Trust::whole && workload_.opens_failed >= kOpensOfBrokenDevice) {
    workload_.must_format = true;
  } else if (blames == ErrorClass::failed && workload_.opens_failed > 200 &&
             workload_.rests_given < kRestsMax) {
    // It fails or vanishes so often that no opening comes to its end.
    workload_.opens_failed = 0;
    ++workload_.rests_given;
    for (const FaultKind kind :
         {d7_read_error, d8_write_error, d9_flush_error, d15_device_vanishes}) {
      workload_.simulator.set_rate(kind, workload_.simulator.swarm().rate(kind) / 4);
    }
  } else if (workload_.opens_failed > 2000) {
    workload_.simulator.fail("the store does not open any more: " + error.message());
  }
}

Task<void> StoreProgram::run() {
  if (!co_await open()) {
    die();
    co_return;
  }
  for (std::uint64_t object = 0; object < kObjects; ++object) {
    Place all{.object = {}, .block = kWindowStart, .index = object * kWindow, .count = kWindow};
    all.object = {.pool = PoolId(1), .family = kFamily, .branch = 1, .object_number = object};
    if (!co_await read(all)) co_return;
  }
  if (!workload_.simulator.faults_on()) {
    co_await look_closely();
    ++workload_.verified;
    co_return;
  }
  ++workload_.verified;
  for (int i = 0; i < kClients; ++i) scope_.spawn(client());
}

// At the end: everything goes home, every block has one owner, every byte its checksum.
Task<void> StoreProgram::look_closely() {
  Simulator& simulator = workload_.simulator;
  if (auto done = co_await store_->checkpoint(); !done && workload_.trust == Trust::whole) {
    simulator.fail("checkpoint: " + done.error().message());
  }
  if (auto account = co_await store_->audit(); !account && workload_.trust == Trust::whole) {
    simulator.fail("audit: " + account.error().message());
  }
  auto scrubbed = co_await store_->scrub();
  if (!scrubbed) {
    if (workload_.trust != Trust::whole) co_return;
    simulator.fail("scrub: " + scrubbed.error().message());
  } else if (scrubbed->corrupt_found > 0 && !workload_.device_spoilt_something()) {
    simulator.fail("scrub found corruption that the device did not cause");
  }
  for (std::uint64_t object = 0; object < kObjects; ++object) {
    Place all{.object = {}, .block = kWindowStart, .index = object * kWindow, .count = kWindow};
    all.object = {.pool = PoolId(1), .family = kFamily, .branch = 1, .object_number = object};
    (void)co_await read(all);
  }
}

StoreProgram::Place StoreProgram::draw_place(std::uint32_t count_max) {
  Rng& rng = workload_.rng;
  Place place;
  place.count = static_cast<std::uint32_t>(rng.between(1, count_max));
  const auto within = static_cast<std::uint32_t>(rng.below(kWindow - place.count + 1));
  const std::uint64_t object = rng.below(kObjects);
  place.object = {.pool = PoolId(1), .family = kFamily, .branch = 1, .object_number = object};
  place.block = kWindowStart + within;
  place.index = object * kWindow + within;
  return place;
}

Task<void> StoreProgram::client() {
  Rng& rng = workload_.rng;
  while (!workload_.finished() && !node_.doomed()) {
    if (node_.env().faults.fires("store.client") || node_.doomed()) {
      workload_.operation_done();
      (void)co_await node_.env().clock.sleep(microseconds(10));
      continue;
    }
    const std::uint64_t choice = rng.below(100);
    if (choice < 45) {
      co_await write(draw_place(rng.chance(0.7) ? 2 : 8));
    } else if (choice < 52) {
      co_await write(draw_place(40));
    } else if (choice < 60) {
      co_await zero(draw_place(rng.chance(0.7) ? 3 : 40));
    } else if (choice < 61) {
      co_await remove(rng.below(kObjects));
    } else if (choice < 97) {
      (void)co_await read(draw_place(rng.chance(0.8) ? 3 : 40));
    } else if (choice < 98) {
      (void)co_await store_->checkpoint();
    } else if (choice < 99) {
      (void)co_await store_->scrub();
    } else {
      const auto account = co_await store_->audit();
      if (!account && is(account.error(), StoreError::corrupt_index) &&
          !workload_.device_spoilt_something()) {
        workload_.simulator.fail("audit: " + account.error().message());
      }
    }
    if (workload_.trust == Trust::whole && store_->stats().index_damage_found > 0) {
      workload_.simulator.fail("the index names blocks that its lane does not own");
    }
    workload_.operation_done();
    if (rng.chance(0.1)) {
      (void)co_await node_.env().clock.sleep(
          microseconds(static_cast<std::int64_t>(rng.below(20'000))));
    }
  }
}

void StoreProgram::ended(model::WriteId id, const Result<void>& result) {
  std::erase(workload_.open_writes, id);
  if (result) {
    workload_.model.acknowledged(id);
  } else if (is(result.error(), StoreError::no_space) ||
             is(result.error(), RuntimeError::out_of_memory)) {
    workload_.model.refused(id);
  } else {
    workload_.model.unknown(id);
    die();
  }
}

Task<void> StoreProgram::write(Place place) {
  const model::PlacedBytes memory(std::size_t{place.count} * kBlockBytes,
                                  workload_.rng.chance(0.5));
  const auto data = memory.span();
  const model::WriteId id = workload_.model.begin_write(BlockIndex(place.index), place.count);
  workload_.open_writes.push_back(id);
  model::fill_blocks(data, workload_.image, BlockIndex(place.index), id);
  std::vector<std::uint32_t> checksums;
  for (std::uint32_t i = 0; i < place.count; ++i) {
    checksums.push_back(crc32c(data.subspan(std::size_t{i} * kBlockBytes, kBlockBytes)));
  }
  const auto result = co_await store_->write({.object = place.object,
                                              .first_block = place.block,
                                              .data = data,
                                              .checksums = checksums,
                                              .stamp = {}});
  ended(id, result);
}

Task<void> StoreProgram::zero(Place place) {
  const model::WriteId id = workload_.model.begin_zero(BlockIndex(place.index), place.count);
  workload_.open_writes.push_back(id);
  const auto result = co_await store_->zero(
      place.object, {.first_block = place.block, .block_count = place.count}, {});
  ended(id, result);
}

Task<void> StoreProgram::remove(std::uint64_t object) {
  const model::WriteId id = workload_.model.begin_zero(BlockIndex(object * kWindow), kWindow);
  workload_.open_writes.push_back(id);
  const auto result = co_await store_->remove(
      {.pool = PoolId(1), .family = kFamily, .branch = 1, .object_number = object}, {});
  ended(id, result);
}

// False when the incarnation is over.
Task<bool> StoreProgram::read(Place place) {
  const model::PlacedBytes memory(std::size_t{place.count} * kBlockBytes,
                                  workload_.rng.chance(0.5));
  const auto into = memory.span();
  const model::ReadId id = workload_.model.begin_read(BlockIndex(place.index), place.count);
  workload_.open_reads.push_back(id);
  const auto outcome = co_await store_->read_partial(place.object, place.block, into);
  std::erase(workload_.open_reads, id);
  if (!outcome) {
    workload_.model.forget_read(id);
    if (outcome.error().error_class() == ErrorClass::corrupt &&
        !workload_.device_spoilt_something()) {
      workload_.simulator.fail("read: " + outcome.error().message());
    }
    if (is(outcome.error(), RuntimeError::out_of_memory)) co_return true;
    // Reported: the other objects are served.
    if (outcome.error().error_class() == ErrorClass::corrupt) co_return true;
    die();
    co_return false;
  }
  if (workload_.trust == Trust::phantoms_only) {
    workload_.model.forget_read(id);
    look_for_phantoms(place, into, outcome->corrupt_blocks);
    co_return true;
  }
  if (outcome->corrupt_blocks.empty()) {
    if (auto violation = workload_.model.end_read(id, into)) {
      workload_.simulator.fail(*violation);
    }
    co_return true;
  }
  workload_.model.forget_read(id);
  if (!workload_.device_spoilt_something()) {
    workload_.simulator.fail("a block is corrupt that the device did not spoil");
  }
  co_return true;
}

// I10: whatever the device did, a block that is served is zeros or was written to this place of
// this image.
void StoreProgram::look_for_phantoms(Place place, std::span<const std::byte> bytes,
                                     const std::vector<std::uint32_t>& corrupt) {
  for (std::uint32_t i = 0; i < place.count; ++i) {
    if (std::find(corrupt.begin(), corrupt.end(), place.block + i) != corrupt.end()) continue;
    const auto block = bytes.subspan(std::size_t{i} * kBlockBytes).first<kBlockBytes>();
    const auto name = model::read_block(block);
    const bool real = name && (name->write.value == 0 || (name->image == workload_.image &&
                                                          name->block.value == place.index + i));
    if (!real) workload_.simulator.fail("phantom data: " + model::describe_block(block));
  }
}

}  // namespace

// No network.
FaultProfile store_profile() {
  return FaultProfile::destructive().without(n1_delay);
}

std::unique_ptr<Workload> make_store(WorkloadContext context) {
  return std::make_unique<StoreWorkload>(context);
}

}  // namespace sarsen::sim
