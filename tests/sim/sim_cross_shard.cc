#include "tests/sim/sim_cross_shard.h"

namespace sarsen::sim {

SimMailboxes::SimMailboxes(Simulator& simulator, Rng rng)
    : simulator_(simulator),
      rng_(rng),
      // Small in some seeds, so that the full mailbox is met.
      capacity_(std::array<std::uint32_t, 3>{4, 32, 256}[rng_.below(3)]) {}

void SimMailboxes::add_shard(SimExecutor& executor) {
  shards_.push_back(&executor);
  boxes_ = std::vector<Mailbox>(shards_.size() * shards_.size());
}

Result<void> SimMailboxes::post(std::uint32_t source, std::uint32_t target, ShardMessage& message) {
  if (stopped_) return {};
  SARSEN_ASSERT(target < shards_.size(), "the target shard exists");
  const std::uint64_t index = source * shards_.size() + target;
  Mailbox& box = boxes_[index];
  if (box.size == capacity_) {
    simulator_.probe("sim.mailbox_full");
    return fail(make_error(RuntimeError::overloaded, "the mailbox of the shard is full"));
  }
  box.messages.push_back(message);
  ++box.size;
  const Duration delay(static_cast<std::int64_t>(rng_.below(5'000)));
  simulator_.post(delay, EventKind::message, shards_[target]->place(), *this, index);
  return {};
}

void SimMailboxes::on_event(std::uint64_t index) {
  if (stopped_) return;
  Mailbox& box = boxes_[index];
  SimExecutor& target = *shards_[index % shards_.size()];
  if (target.paused()) {
    simulator_.post(target.paused_until() - simulator_.now(), EventKind::message, target.place(),
                    *this, index);
    return;
  }
  // One event per message, and each takes the oldest: order holds whatever the delays were.
  --box.size;
  if (!box.messages.empty()) box.messages.pop_front().run();
}

}  // namespace sarsen::sim
