#include "tests/sim/sim_node.h"

#include "tests/sim/sim_blocking_pool.h"
#include "tests/sim/sim_buffers.h"
#include "tests/sim/sim_clock.h"
#include "tests/sim/sim_cross_shard.h"
#include "tests/sim/sim_disk.h"
#include "tests/sim/sim_faults.h"
#include "tests/sim/sim_network.h"
#include "tests/sim/sim_random.h"

namespace sarsen::sim {

// Everything one shard is given. Members die in reverse order: ports and scope before the executor.
struct SimNode::Shard {
  Shard(SimNode& node, std::uint32_t index)
      : executor(node.simulator_, node.place(ShardId(index)), node.rng_.split()),
        clock(node.simulator_, executor, node.rng_.split()),
        random(node.rng_.split()),
        network(node.simulator_.network(), executor, clock),
        buffers(node.simulator_, node.options_.buffer_bytes_max, node.rng_.split()),
        cross_shard(*node.mailboxes_, index),
        blocking(node.simulator_, node, executor, node.rng_.split()),
        faults(node.simulator_, node, node.rng_.split()),
        env{ShardId(index), executor,    clock,    random, network,
            buffers,        cross_shard, blocking, faults},
        scope(executor) {
    for (SimDisk* disk : node.options_.disks) {
      ports.push_back(std::make_unique<SimDiskPort>(*disk, executor));
    }
  }

  SimExecutor executor;
  SimClock clock;
  SimRandom random;
  SimNetwork network;
  SimBuffers buffers;
  SimCrossShard cross_shard;
  SimBlockingPool blocking;
  SimFaultPoints faults;
  Env env;
  std::vector<std::unique_ptr<SimDiskPort>> ports;
  Scope scope;
};

SimNode::SimNode(Simulator& simulator, std::uint16_t id, SimNodeOptions options, Rng rng)
    : simulator_(simulator), id_(id), options_(std::move(options)), rng_(rng) {}

SimNode::~SimNode() {
  SARSEN_ASSERT(!up(), "a node is down before it is destroyed");
}

void SimNode::start() {
  SARSEN_ASSERT(!up(), "a node that is up is not started");
  ++incarnation_;
  doomed_ = false;
  // The mailboxes need the executors, and the shards need the mailboxes: the list is filled below.
  mailboxes_ = std::make_unique<SimMailboxes>(simulator_, rng_.split());
  for (std::uint32_t index = 0; index < options_.shards; ++index) {
    shards_.push_back(std::make_unique<Shard>(*this, index));
    mailboxes_->add_shard(shards_.back()->executor);
  }
  for (SimDisk* disk : options_.disks) {
    disk->open();
    blocking_ports_.push_back(std::make_unique<SimBlockingPort>(*disk, *this));
  }
  if (!factory_) return;
  simulator_.run_at(place(ShardId(0)), [this] { program_ = factory_(*this); });
}

void SimNode::crash(CrashKind kind) {
  SARSEN_ASSERT(up(), "a node that is down cannot crash");
  if (doomed_) return;
  doomed_ = true;
  simulator_.trace(EventKind::crash, place(ShardId(0)), static_cast<std::uint64_t>(kind));
  // What the program still does until the running event returns no longer reaches a disk.
  cut_disks(kind);
  if (simulator_.running()) {
    simulator_.crash_soon(*this);
  } else {
    tear_down();
  }
}

void SimNode::cut_disks(CrashKind kind) {
  for (const auto& shard : shards_) {
    for (const auto& port : shard->ports) port->cut();
  }
  for (const auto& port : blocking_ports_) port->cut();
  for (SimDisk* disk : options_.disks) {
    if (kind == CrashKind::power_loss) {
      disk->lose_power();
    } else {
      disk->lose_process();
    }
  }
}

void SimNode::tear_down() {
  ++crashes_;
  for (const auto& shard : shards_) {
    shard->executor.stop_running();
    shard->blocking.stop();
    shard->network.stop();
  }
  mailboxes_->stop();
  for (const auto& shard : shards_) shard->executor.destroy_frames();
  program_.reset();
  clear();
}

void SimNode::stop() {
  SARSEN_ASSERT(up() && !doomed_, "only a node that is up is stopped");
  program_.reset();
  for (const auto& shard : shards_) {
    for (const auto& port : shard->ports) port->cut();
    shard->executor.stop_running();
    shard->blocking.stop();
    shard->network.stop();
  }
  mailboxes_->stop();
  for (const auto& port : blocking_ports_) port->cut();
  for (SimDisk* disk : options_.disks) disk->lose_process();
  clear();
}

void SimNode::clear() {
  blocking_ports_.clear();
  shards_.clear();
  mailboxes_.reset();
  doomed_ = false;
}

void SimNode::pause(Duration duration) {
  for (const auto& shard : shards_) shard->executor.pause_until(simulator_.now() + duration);
}

Env& SimNode::env(ShardId shard) {
  return shards_[shard.value]->env;
}
Disk& SimNode::disk(std::size_t index, ShardId shard) {
  return *shards_[shard.value]->ports[index];
}
BlockingDisk& SimNode::blocking_disk(std::size_t index) {
  return *blocking_ports_[index];
}
Scope& SimNode::scope(ShardId shard) {
  return shards_[shard.value]->scope;
}

}  // namespace sarsen::sim
