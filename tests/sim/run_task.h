// run_task(): runs one coroutine on a simulated shard until it ends, for tests and workloads.
//
//   std::optional<Result<Store*>> opened = run_task(node, open_store(node.env(), node.disk()));
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "dataplane/runtime/scope.h"
#include "tests/sim/sim_node.h"
#include "tests/sim/simulator.h"

namespace sarsen::sim {

namespace run_task_internal {

template <typename T>
struct Outcome {
  std::optional<T> value;
  bool ended = false;
};

// Says that the frame is gone: it finished, or died in a crash.
template <typename T>
struct Ended {
  std::shared_ptr<Outcome<T>> outcome;
  ~Ended() { outcome->ended = true; }
};

template <typename T>
Task<void> drive(Task<T> task, std::shared_ptr<Outcome<T>> outcome) {
  const Ended<T> ended{outcome};
  outcome->value.emplace(co_await std::move(task));
}

inline Task<bool> then_true(Task<void> task) {
  co_await std::move(task);
  co_return true;
}

}  // namespace run_task_internal

// The value, or nothing when the node crashed first. Called between events. A task that waits for
// something that never happens asserts.
template <typename T>
std::optional<T> run_task(SimNode& node, Task<T> task, ShardId shard = ShardId(0)) {
  Simulator& simulator = node.simulator();
  auto outcome = std::make_shared<run_task_internal::Outcome<T>>();
  simulator.run_at(node.place(shard), [&] {
    node.scope(shard).spawn(run_task_internal::drive(std::move(task), outcome));
  });
  simulator.run_until([&outcome] { return outcome->ended; });
  SARSEN_ASSERT(outcome->ended, "the task waits for something that never happens");
  return std::move(outcome->value);
}

// True when it finished, false when the node crashed first.
inline bool run_task(SimNode& node, Task<void> task, ShardId shard = ShardId(0)) {
  return run_task(node, run_task_internal::then_true(std::move(task)), shard).has_value();
}

}  // namespace sarsen::sim
