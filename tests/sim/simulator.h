// Simulator: a world in one thread and in virtual time, repeatable from one seed.
//
// It owns the event queue, the disks and the nodes. An event is keyed by (virtual time, a tie-break
// drawn from the seed, insertion number); running one may post others. Time jumps from event to
// event. The same seed and the same code give the same events, which trace_hash() proves.
//
// Lifecycle  add_disk() and add_node(), then SimNode::start(), then step() or one of the run
//            functions. Destruction crashes what is still up.
// Threads    One. Only BlockingDisk may be used from other threads, while the job that waits for
//            them runs (one of them at a time, or the run does not repeat).
// Errors     A promise broken by the code under test (overlapping transfers, a leaked buffer, a
//            wrong shard) asserts.
// Determinism  Nothing here may depend on an address, on the order of an unordered container, on
// the
//            real clock, or on memory that was not written.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dataplane/base/rng.h"
#include "dataplane/runtime/env.h"
#include "tests/sim/fault_kinds.h"
#include "tests/sim/swarm.h"

namespace sarsen::sim {

class SimDisk;
class SimNode;
class SimNetworkHub;
struct SimDiskOptions;
struct SimNodeOptions;

enum class EventKind : std::uint8_t {
  harness,
  turn,  // of one ready coroutine
  timer,
  disk,
  blocking_start,
  blocking_done,
  message,  // between shards
  network,
  outcome,  // traced only: what an operation answered
  crash,    // traced only
};

// Where an event happens.
struct Place {
  static constexpr std::uint16_t kHarness = 0xffff;
  std::uint16_t node = kHarness;
  std::uint16_t shard = 0;
};

class EventSink {
 public:
  virtual void on_event(std::uint64_t argument) = 0;

 protected:
  ~EventSink() = default;
};

// Names a posted event; fits DiskOperation::scratch. 0 names none.
using EventToken = std::uint64_t;

struct SimulatorOptions {
  std::uint64_t seed = 1;
  FaultProfile profile = FaultProfile::none();
  std::string planted = {};         // the one planted bug that is switched on, or none
  std::FILE* trace_file = nullptr;  // every event as a line, to compare two runs
};

class Simulator {
 public:
  explicit Simulator(SimulatorOptions options);
  Simulator(const Simulator&) = delete;
  Simulator& operator=(const Simulator&) = delete;
  ~Simulator();

  SimDisk& add_disk(SimDiskOptions options);
  SimNode& add_node(SimNodeOptions options);
  const std::vector<std::unique_ptr<SimNode>>& nodes() const { return nodes_; }
  const std::vector<std::unique_ptr<SimDisk>>& disks() const { return disks_; }
  SimNetworkHub& network() { return *network_; }

  std::uint64_t seed() const { return options_.seed; }
  BootTime now() const { return now_; }
  std::uint64_t events_run() const { return events_run_; }
  std::uint64_t trace_hash() const { return trace_hash_; }

  // ------------------------------------------------------------------------------------ running
  // Runs the next event; false when there is none.
  bool step();
  // True when `done` became true; false when events ran out, `limit` of virtual time passed, or a
  // judge failed the run.
  bool run_until(const std::function<bool()>& done, Duration limit = seconds(3600));
  void run_for(Duration duration);
  // Calls `action` now, as if an event of that place ran; see run_task.h for coroutines.
  void run_at(Place place, const std::function<void()>& action);

  // ------------------------------------------------------------------------------------- verdict
  // A judge says that the code under test broke a promise. The first one counts; runs end.
  void fail(std::string what);
  bool failed() const { return failure_.has_value(); }
  struct Failure {
    std::string what;
    std::uint64_t event = 0;
  };
  const std::optional<Failure>& failure() const { return failure_; }

  // ------------------------------------------------------------------------------------- events
  EventToken post(Duration after, EventKind kind, Place place, EventSink& sink,
                  std::uint64_t argument = 0);
  // The event does not happen. `token` is of an event that has not run, or 0.
  void cancel(EventToken token);
  // For tests and the nemesis: calls `action` as an event of its own, on no node.
  void call_after(Duration after, std::function<void()> action);
  // Adds to the trace hash. Never an address.
  void trace(EventKind kind, Place place, std::uint64_t a, std::uint64_t b = 0,
             std::uint64_t c = 0);
  // Where the running event happens.
  Place current_place() const { return current_; }

  // ------------------------------------------------------------------------------------- chance
  const Swarm& swarm() const { return swarm_; }
  void set_rate(FaultKind kind, double rate) { swarm_.set_rate(kind, rate); }
  void set_inline_resumption(bool on) { swarm_.inline_resumption = on; }
  // An independent stream for a new part of the world. Call in a repeatable order.
  Rng split_rng() { return rng_.split(); }
  // Off in a liveness phase: nothing new breaks, what is broken stays so.
  void set_faults_on(bool on) { faults_on_ = on; }
  bool faults_on() const { return faults_on_; }
  // Whether a fault should happen now. The caller counts it once it has had its effect.
  bool roll(FaultKind kind, Rng& rng) const {
    const double rate = swarm_.rate(kind);
    return faults_on_ && rate > 0 && rng.chance(rate);
  }
  // The `count`th buffer from now on is refused, and that one only; for n-th failure loops.
  void fail_one_allocation(std::uint64_t count) { allocation_to_fail_ = count; }
  bool allocation_failure_is_to_come() const { return allocation_to_fail_.has_value(); }
  // For SimBuffers, at each allocation.
  bool allocation_fails() {
    if (!allocation_to_fail_ || (*allocation_to_fail_)-- != 0) return false;
    allocation_to_fail_.reset();
    return true;
  }
  void count(FaultKind kind) { ++fault_counts_[index_of(kind)]; }
  const FaultCounts& fault_counts() const { return fault_counts_; }

  // -------------------------------------------------------------- what FaultPoints is made of
  // FDB's rule: a point is armed in a quarter of the seeds, and then fires with a rate of its own.
  bool fault_point_fires(std::string_view name);
  bool planted(std::string_view name);
  void probe(std::string_view name);
  const std::map<std::string, std::uint64_t, std::less<>>& probes() const { return probes_; }
  std::uint64_t planted_uses() const { return planted_uses_; }

  // ------------------------------------------------------------------------------- for SimNode
  bool running() const { return running_; }
  // The node is torn down when the running event returns.
  void crash_soon(SimNode& node);

 private:
  struct Event {
    EventSink* sink = nullptr;
    std::uint64_t argument = 0;
    std::uint64_t sequence = 0;
    std::uint32_t generation = 0;
    EventKind kind = EventKind::harness;
    bool live = false;
    Place place;
  };
  struct Key {
    std::int64_t time;
    std::uint64_t sequence;
    std::uint32_t tie;
    std::uint32_t slot;
  };
  struct Later {
    bool operator()(const Key& a, const Key& b) const {
      if (a.time != b.time) return a.time > b.time;
      if (a.tie != b.tie) return a.tie > b.tie;
      return a.sequence > b.sequence;
    }
  };
  class HarnessCalls;

  void run_event(const Event& event);
  void crash_doomed();

  SimulatorOptions options_;
  Rng rng_;
  Rng tie_rng_;
  Rng point_rng_;
  Swarm swarm_;
  BootTime now_;
  std::vector<Key> queue_;  // a heap
  std::vector<Event> slots_;
  std::vector<std::uint32_t> free_slots_;
  std::uint64_t sequence_ = 0;
  std::uint64_t events_run_ = 0;
  std::uint64_t trace_hash_ = 0;
  bool running_ = false;
  bool faults_on_ = true;
  Place current_;
  FaultCounts fault_counts_{};
  std::map<std::string, double, std::less<>> fault_points_;
  std::map<std::string, std::uint64_t, std::less<>> probes_;
  std::uint64_t planted_uses_ = 0;
  std::optional<std::uint64_t> allocation_to_fail_;
  std::optional<Failure> failure_;
  std::vector<SimNode*> doomed_;
  std::unique_ptr<HarnessCalls> calls_;
  std::unique_ptr<SimNetworkHub> network_;
  std::vector<std::unique_ptr<SimDisk>> disks_;
  std::vector<std::unique_ptr<SimNode>> nodes_;
};

// A rolling hash of words.
constexpr std::uint64_t mix(std::uint64_t hash, std::uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 32);
}
std::uint64_t hash_of(std::string_view text);

}  // namespace sarsen::sim
