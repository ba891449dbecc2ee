// SimClock: virtual time of one shard. Timers fire at their deadline or up to 50 µs later.
#pragma once

#include "tests/sim/sim_executor.h"

namespace sarsen::sim {

class SimClock final : public Clock, public EventSink {
 public:
  SimClock(Simulator& simulator, SimExecutor& executor, Rng rng)
      : simulator_(simulator), executor_(executor), rng_(rng) {}

  BootTime now() const override { return simulator_.now(); }
  // 1 January 2030, and what has passed since.
  std::int64_t wall_time_ns() const override {
    return 1'893'456'000'000'000'000 + simulator_.now().value;
  }
  void on_event(std::uint64_t argument) override;

 protected:
  void submit(SleepOperation& operation) override;
  void withdraw(SleepOperation& operation, bool resume) override;

 private:
  Simulator& simulator_;
  SimExecutor& executor_;
  Rng rng_;
};

}  // namespace sarsen::sim
