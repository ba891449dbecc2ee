#include "tests/sim/sim_executor.h"

#include "dataplane/base/assert.h"

namespace sarsen::sim {
namespace {
// So that time passes even for coroutines that only yield to each other.
constexpr std::int64_t kTurnNs = 100;
}  // namespace

void SimExecutor::schedule(std::coroutine_handle<> handle) {
  if (stopped_) return;  // a destructor of a frame that dies in a crash
  const Place caller = simulator_.current_place();
  SARSEN_ASSERT(caller.node == Place::kHarness ||
                    (caller.node == place_.node && caller.shard == place_.shard),
                "a coroutine is scheduled from its own shard");
  ready_.push_back(handle);
  if (turn_ == 0) post_turn();
}

void SimExecutor::deliver(std::coroutine_handle<> handle) {
  if (simulator_.swarm().inline_resumption && !paused()) {
    handle.resume();
  } else {
    schedule(handle);
  }
}

void SimExecutor::post_turn() {
  const auto cost_max = static_cast<std::uint64_t>(simulator_.swarm().turn_cost_max.value);
  Duration after(kTurnNs + static_cast<std::int64_t>(rng_.below(cost_max + 1)));
  if (paused()) after = paused_until_ - simulator_.now();
  turn_ = simulator_.post(after, EventKind::turn, place_, *this);
}

void SimExecutor::on_event(std::uint64_t) {
  turn_ = 0;
  if (paused()) {
    post_turn();
    return;
  }
  // Any of those that are ready: the real one promises no order within a turn.
  const std::size_t chosen = rng_.below(ready_.size());
  const std::coroutine_handle<> handle = ready_[chosen];
  ready_[chosen] = ready_.back();
  ready_.pop_back();
  if (!ready_.empty()) post_turn();
  handle.resume();
}

void SimExecutor::stop_running() {
  stopped_ = true;
  ready_.clear();
  simulator_.cancel(turn_);
  turn_ = 0;
}

}  // namespace sarsen::sim
