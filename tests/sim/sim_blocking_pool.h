// SimBlockingPool: the thread of one shard for work that blocks. A job runs within one event, on
// the simulator's thread; virtual time passes for the I/O it did before its waiter resumes. Jobs
// run in submission order.
#pragma once

#include "tests/sim/sim_executor.h"

namespace sarsen::sim {

class SimNode;

class SimBlockingPool final : public BlockingPool, public EventSink {
 public:
  SimBlockingPool(Simulator& simulator, SimNode& node, SimExecutor& executor, Rng rng)
      : simulator_(simulator), node_(node), executor_(executor), rng_(rng) {}

  void on_event(std::uint64_t argument) override;
  void stop();

 protected:
  void submit(BlockingJob& job) override;
  void withdraw(BlockingJob& job) override;

 private:
  void post_start();
  void run_next();
  void finish();

  Simulator& simulator_;
  SimNode& node_;
  SimExecutor& executor_;
  Rng rng_;
  IntrusiveList<BlockingJob> queued_;
  BlockingJob* ran_ = nullptr;  // between its run and its waiter's resumption
  EventToken event_ = 0;
  bool stopped_ = false;
};

}  // namespace sarsen::sim
