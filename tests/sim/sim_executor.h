// SimExecutor: the run queue of one simulated shard. Each turn resumes one ready coroutine, drawn
// from the seed.
//
// Shard  Calls come from events of its own shard, or from the harness between events.
#pragma once

#include <vector>

#include "dataplane/runtime/executor.h"
#include "tests/sim/simulator.h"

namespace sarsen::sim {

class SimExecutor final : public Executor, public EventSink {
 public:
  SimExecutor(Simulator& simulator, Place place, Rng rng)
      : simulator_(simulator), place_(place), rng_(rng) {}

  void schedule(std::coroutine_handle<> handle) override;
  // Resumes the waiter of something that completed: at once, or through the queue.
  void deliver(std::coroutine_handle<> handle);
  void on_event(std::uint64_t argument) override;

  Place place() const { return place_; }
  // Until then no coroutine runs, as if the process were stopped.
  void pause_until(BootTime end) { paused_until_ = end; }
  BootTime paused_until() const { return paused_until_; }
  bool paused() const { return simulator_.now() < paused_until_; }

  // The two steps of a crash: nothing runs any more; then the frames are destroyed.
  void stop_running();
  void destroy_frames() { abandon_scopes(); }

 private:
  void post_turn();

  Simulator& simulator_;
  Place place_;
  Rng rng_;
  std::vector<std::coroutine_handle<>> ready_;
  EventToken turn_ = 0;
  BootTime paused_until_;
  bool stopped_ = false;
};

}  // namespace sarsen::sim
