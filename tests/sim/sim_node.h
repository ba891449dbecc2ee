// SimNode: one simulated machine that runs one process of S shards on some disks.
//
// Lifecycle  start() makes the Envs and calls the factory for the Program; crash() takes both away
//            between two events and leaves the disks; then start() again. stop() is the clean end:
//            the program has finished its own stop() before.
// Shard      Belongs to the harness. Programs see Env, Disk and BlockingDisk.
// Crash      First the outcome of every transfer in flight is decided, then nothing of the node
// runs
//            any more, then its coroutine frames are destroyed (newest scope first), then the
//            program, then the Envs.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "dataplane/runtime/env.h"
#include "dataplane/runtime/scope.h"
#include "tests/sim/simulator.h"

namespace sarsen::sim {

class SimDisk;
class SimDiskPort;
class SimBlockingPort;
class SimExecutor;
class SimMailboxes;

// What runs on a node: whatever the factory makes. Destroyed by a crash, after all frames.
class Program {
 public:
  virtual ~Program() = default;
};

enum class CrashKind : std::uint8_t {
  process_kill,  // the device keeps what it completed; what was in flight may still land
  power_loss,    // of the node: the volatile caches of its disks are lost as well
};

struct SimNodeOptions {
  std::uint32_t shards = 1;
  std::vector<SimDisk*> disks = {};
  std::uint64_t buffer_bytes_max = 64 * kMiB;  // per shard
};

class SimNode {
 public:
  using Factory = std::function<std::unique_ptr<Program>(SimNode&)>;

  SimNode(Simulator& simulator, std::uint16_t id, SimNodeOptions options, Rng rng);
  SimNode(const SimNode&) = delete;
  SimNode& operator=(const SimNode&) = delete;
  ~SimNode();

  void set_factory(Factory factory) { factory_ = std::move(factory); }

  // The node is down. Calls the factory, if there is one, before it returns.
  void start();
  // The node is up. From within the node's own events it takes effect when the event returns.
  void crash(CrashKind kind);
  // Clean end of a program that has no coroutine left.
  void stop();
  // As if stopped by a signal: no coroutine runs, time goes on, I/O completes.
  void pause(Duration duration);

  std::uint16_t id() const { return id_; }
  std::uint32_t shard_count() const { return options_.shards; }
  bool up() const { return !shards_.empty(); }
  // A crash was decided and takes effect when the running event returns.
  bool doomed() const { return doomed_; }
  // How often it was started.
  std::uint64_t incarnation() const { return incarnation_; }
  std::uint64_t crashes() const { return crashes_; }
  Place place(ShardId shard) const { return {id_, static_cast<std::uint16_t>(shard.value)}; }
  Simulator& simulator() { return simulator_; }

  // Of the current incarnation; gone after a crash.
  Env& env(ShardId shard = ShardId(0));
  Disk& disk(std::size_t index = 0, ShardId shard = ShardId(0));
  BlockingDisk& blocking_disk(std::size_t index = 0);
  // For tests; dies last of all scopes.
  Scope& scope(ShardId shard = ShardId(0));
  Program* program() { return program_.get(); }
  SimDisk& sim_disk(std::size_t index = 0) { return *options_.disks[index]; }

  // For the parts of the simulator.
  void add_blocking_time(Duration time) {
    blocking_time_ = Duration(blocking_time_.value + time.value);
  }
  // Blocking I/O comes from a job, or from threads that the job waits for; anything else does not
  // repeat.
  void set_in_job(bool in_job) { in_job_ = in_job; }
  bool in_job() const { return in_job_; }
  Duration take_blocking_time() { return std::exchange(blocking_time_, Duration(0)); }

 private:
  friend class Simulator;
  struct Shard;
  void cut_disks(CrashKind kind);
  void tear_down();
  void clear();

  Simulator& simulator_;
  std::uint16_t id_;
  SimNodeOptions options_;
  Rng rng_;
  Factory factory_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::unique_ptr<SimMailboxes> mailboxes_;
  std::vector<std::unique_ptr<SimBlockingPort>> blocking_ports_;
  std::unique_ptr<Program> program_;
  Duration blocking_time_;
  std::uint64_t incarnation_ = 0;
  std::uint64_t crashes_ = 0;
  bool doomed_ = false;
  std::atomic<bool> in_job_ = false;
};

}  // namespace sarsen::sim
