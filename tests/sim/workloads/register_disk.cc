#include "tests/sim/workloads/register_disk.h"

#include <algorithm>

#include "dataplane/runtime/yield.h"
#include "tests/model/payload.h"
#include "tests/sim/nemesis.h"
#include "tests/sim/run_task.h"
#include "tests/sim/sim_disk.h"
#include "tests/sim/workloads/disk_judge.h"

namespace sarsen::sim {
namespace {

// Few, so that writes meet each other.
constexpr std::uint64_t kBlocks = 96;
constexpr std::uint64_t kBlocksMax = 12;       // of one operation
constexpr std::uint64_t kBlocksDiscarded = 8;  // a power of two
constexpr int kClients = 6;

class RegisterDisk;

// What runs on the node: it reads everything back, then starts clients. Any error of the device
// ends the incarnation, as it would end a store.
class DiskClients final : public Program {
 public:
  DiskClients(RegisterDisk& workload, SimNode& node)
      : workload_(workload), node_(node), scope_(node.env().executor) {
    scope_.spawn(run());
  }

 private:
  Task<void> run();
  Task<void> client();
  Task<bool> read(std::uint64_t first, std::uint64_t count);
  Task<bool> write(std::uint64_t first, std::uint64_t count);
  Task<bool> flush();
  Task<bool> discard(std::uint64_t first, std::uint64_t count);
  // Whether the incarnation goes on.
  bool survive(const Error& error);

  RegisterDisk& workload_;
  SimNode& node_;
  Scope scope_;
};

class RegisterDisk final : public Workload {
 public:
  explicit RegisterDisk(WorkloadContext context)
      : simulator(context.simulator),
        rng(simulator.split_rng()),
        disk(simulator.add_disk({.size_bytes = kBlocks * kBlockBytes * 2,
                                 .volatile_cache = rng.chance(0.8),
                                 .cache_bytes_max = rng.chance(0.5) ? 64 * kKiB : 4 * kMiB})),
        node(simulator.add_node({.disks = {&disk}})),
        judge(kBlocks, simulator.swarm().rate(FaultKind::d5_garbage) > 0,
              simulator.swarm().rate(FaultKind::d8_write_error) > 0),
        busy(kBlocks),
        operations_(context.operations),
        nemesis_(simulator) {
    disk.set_may_spoil([](FaultKind, ByteOffset, std::uint64_t) { return true; });
    node.set_factory([this](SimNode& started) {
      note_crash();
      return std::make_unique<DiskClients>(*this, started);
    });
  }

  void run() override {
    node.start();
    nemesis_.start();
    simulator.run_until([this] { return done_ >= operations_; }, seconds(100'000));
    nemesis_.stop();
    simulator.set_faults_on(false);
    // Liveness: with no new faults the node comes up and reads everything.
    if (node.up()) node.crash(CrashKind::power_loss);
    const std::uint64_t before = verified;
    const bool verified_again = simulator.run_until(
        [this, before] { return nemesis_.quiet() && verified > before; }, seconds(1000));
    if (done_ < operations_) simulator.fail("operations do not complete");
    if (!verified_again) simulator.fail("with faults off, the node does not come up");
    if (node.up()) node.crash(CrashKind::process_kill);
  }

  std::uint64_t operations_done() const override { return done_; }
  void operation_done() { ++done_; }
  bool finished() const { return done_ >= operations_; }

  // What the device did on its own since the last look is no crime of its contract.
  void look_at_ledger() {
    if (disk.times_vanished() != vanished_) {
      vanished_ = disk.times_vanished();
      judge.power_lost();
    }
    const auto& history = disk.ledger().history();
    for (; seen_spoils_ < history.size(); ++seen_spoils_) {
      const Spoil& spoil = history[seen_spoils_];
      if (spoil.kind == FaultKind::d16_flush_lies) judge.failed_flush(~std::uint64_t{0});
      if (spoil.transient) continue;
      const std::uint64_t end = std::min((spoil.offset.value + spoil.size) / kBlockBytes, kBlocks);
      for (std::uint64_t block = spoil.offset.value / kBlockBytes; block < end; ++block) {
        judge.spoilt(block);
      }
    }
  }
  // A crash ends every operation in flight; a power loss is one whether the nemesis, a blocking
  // transfer or a fault point asked for it, so the disk is believed.
  void note_crash() {
    look_at_ledger();
    if (disk.power_losses() != power_losses_) {
      power_losses_ = disk.power_losses();
      judge.power_lost();
    }
    judge.process_died();
    std::fill(busy.begin(), busy.end(), false);
  }

  Simulator& simulator;
  Rng rng;
  SimDisk& disk;
  SimNode& node;
  DiskJudge judge;
  std::vector<bool> busy;  // blocks with an operation in flight
  std::uint64_t next_write = 1;
  std::uint64_t verified = 0;  // how often all blocks were read after a start

 private:
  std::uint64_t operations_;
  std::uint64_t done_ = 0;
  std::uint64_t vanished_ = 0;
  std::uint64_t power_losses_ = 0;
  std::size_t seen_spoils_ = 0;
  Nemesis nemesis_;
};

bool DiskClients::survive(const Error& error) {
  if (is(error, RuntimeError::no_space) || is(error, RuntimeError::out_of_memory)) return true;
  if (!node_.doomed()) node_.crash(CrashKind::process_kill);
  return false;
}

Task<void> DiskClients::run() {
  for (std::uint64_t block = 0; block < kBlocks; block += kBlocksMax) {
    while (!co_await read(block, kBlocksMax)) {
      if (node_.doomed()) co_return;
    }
  }
  ++workload_.verified;
  if (!workload_.simulator.faults_on()) co_return;
  for (int i = 0; i < kClients; ++i) scope_.spawn(client());
}

Task<void> DiskClients::client() {
  while (!workload_.finished() && !node_.doomed()) {
    Rng& rng = workload_.rng;
    // A crash may be drawn here (P2); when the point fires, this turn does nothing.
    if (node_.env().faults.fires("register_disk.skip") || node_.doomed()) {
      workload_.operation_done();
      co_await yield(node_.env().executor);
      continue;
    }
    const std::uint64_t choice = rng.below(20);
    const bool discards = choice == 0;
    std::uint64_t count = rng.chance(0.7) ? 1 : rng.between(2, kBlocksMax);
    if (discards) count = kBlocksDiscarded;
    std::uint64_t first = rng.below(kBlocks - count + 1);
    if (discards) first = round_down(first, kBlocksDiscarded);
    const auto begin = workload_.busy.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end = begin + static_cast<std::ptrdiff_t>(count);
    if (std::find(begin, end, true) != end) {
      (void)co_await node_.env().clock.sleep(microseconds(20));
      continue;
    }
    std::fill(begin, end, true);
    if (discards) {
      (void)co_await discard(first, count);
    } else if (choice < 7) {
      (void)co_await read(first, count);
    } else if (choice < 18) {
      (void)co_await write(first, count);
    } else {
      (void)co_await flush();
    }
    std::fill(begin, end, false);
    workload_.operation_done();
  }
}

Task<bool> DiskClients::read(std::uint64_t first, std::uint64_t count) {
  Result<Buffer> buffer = node_.env().buffers.allocate(count * kBlockBytes);
  if (!buffer) co_return survive(buffer.error()) && false;
  const std::size_t spoils_before = workload_.disk.ledger().history().size();
  const auto result = co_await node_.disk().read(ByteOffset(first * kBlockBytes), buffer->span());
  workload_.look_at_ledger();
  if (!result) {
    // A bad block is bad until it is written.
    if (workload_.disk.ledger().spoilt(ByteOffset(first * kBlockBytes), count * kBlockBytes)) {
      (void)co_await write(first, count);
    }
    co_return survive(result.error()) && false;
  }
  // A misdirected or stale read is the device's fault once, and then right again.
  const auto& history = workload_.disk.ledger().history();
  const bool misread = std::any_of(history.begin() + static_cast<std::ptrdiff_t>(spoils_before),
                                   history.end(), [first, count](const Spoil& spoil) {
                                     return (spoil.kind == FaultKind::d11_misdirected_read ||
                                             spoil.kind == FaultKind::d13_stale_read) &&
                                            spoil.offset.value < (first + count) * kBlockBytes &&
                                            first * kBlockBytes < spoil.offset.value + spoil.size;
                                   });
  if (misread) co_return false;
  if (auto violation = workload_.judge.end_read(first, buffer->span())) {
    workload_.simulator.fail(*violation);
  }
  co_return true;
}

Task<bool> DiskClients::write(std::uint64_t first, std::uint64_t count) {
  Result<Buffer> buffer = node_.env().buffers.allocate(count * kBlockBytes);
  if (!buffer) co_return survive(buffer.error());
  const model::WriteId number(workload_.next_write++);
  model::fill_blocks(buffer->span(), 1, BlockIndex(first), number);
  const auto bytes = buffer->span();
  workload_.look_at_ledger();
  const std::uint64_t id =
      workload_.judge.begin_write(first, std::vector<std::byte>(bytes.begin(), bytes.end()));
  const bool durable = workload_.rng.chance(0.3);
  const ByteOffset offset(first * kBlockBytes);
  const auto result = durable ? co_await node_.disk().write_durable(offset, bytes)
                              : co_await node_.disk().write(offset, bytes);
  workload_.look_at_ledger();
  // A planted bug of the judge's own kind: it believes that everything is durable.
  const bool forgetful = node_.env().faults.planted("register_disk.every_write_is_durable");
  const bool settles = durable || forgetful || !node_.disk().info().volatile_cache;
  if (result) {
    workload_.judge.end_write(id, settles);
    if (workload_.disk.ledger().spoilt(offset, bytes.size())) {
      for (std::uint64_t i = 0; i < count; ++i) workload_.judge.spoilt(first + i);
    }
    co_return true;
  }
  if (is(result.error(), RuntimeError::no_space)) {
    workload_.judge.refused_write(id);
  } else {
    workload_.judge.failed_write(id);
  }
  co_return survive(result.error());
}

Task<bool> DiskClients::flush() {
  const std::uint64_t began = workload_.judge.begin_flush();
  const std::size_t spoils_before = workload_.disk.ledger().history().size();
  const auto result = co_await node_.disk().flush();
  workload_.look_at_ledger();
  const auto& history = workload_.disk.ledger().history();
  const bool lied =
      std::any_of(history.begin() + static_cast<std::ptrdiff_t>(spoils_before), history.end(),
                  [](const Spoil& spoil) { return spoil.kind == FaultKind::d16_flush_lies; });
  const bool early = node_.env().faults.planted("register_disk.flush_covers_later_writes");
  if (result && !lied) {
    workload_.judge.end_flush(early ? ~std::uint64_t{0} : began);
  } else if (!result) {
    workload_.judge.failed_flush(began);
  }
  if (!result) co_return survive(result.error());
  co_return true;
}

Task<bool> DiskClients::discard(std::uint64_t first, std::uint64_t count) {
  // Unspecified from the submission on.
  for (std::uint64_t i = 0; i < count; ++i) workload_.judge.spoilt(first + i);
  const auto result =
      co_await node_.disk().discard(ByteOffset(first * kBlockBytes), count * kBlockBytes);
  workload_.look_at_ledger();
  if (!result) co_return survive(result.error());
  co_return true;
}

}  // namespace

std::unique_ptr<Workload> make_register_disk(WorkloadContext context) {
  return std::make_unique<RegisterDisk>(context);
}

}  // namespace sarsen::sim
