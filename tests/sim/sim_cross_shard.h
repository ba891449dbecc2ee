// Mailboxes between the shards of one simulated node: bounded, in order per (source, target), with
// a delay drawn from the seed.
#pragma once

#include <vector>

#include "tests/sim/sim_executor.h"

namespace sarsen::sim {

// All mailboxes of one node.
class SimMailboxes final : public EventSink {
 public:
  SimMailboxes(Simulator& simulator, Rng rng);
  // Before the first post().
  void add_shard(SimExecutor& executor);

  Result<void> post(std::uint32_t source, std::uint32_t target, ShardMessage& message);
  void on_event(std::uint64_t argument) override;
  std::uint32_t shard_count() const { return static_cast<std::uint32_t>(shards_.size()); }
  void stop() { stopped_ = true; }

 private:
  struct Mailbox {
    IntrusiveList<ShardMessage> messages;
    std::uint32_t size = 0;
  };
  Simulator& simulator_;
  std::vector<SimExecutor*> shards_;
  Rng rng_;
  std::uint32_t capacity_;
  std::vector<Mailbox> boxes_;  // [source * shards + target]
  bool stopped_ = false;
};

// One shard's view.
class SimCrossShard final : public CrossShard {
 public:
  SimCrossShard(SimMailboxes& mailboxes, std::uint32_t source)
      : mailboxes_(mailboxes), source_(source) {}
  std::uint32_t shard_count() const override { return mailboxes_.shard_count(); }
  Result<void> post(ShardId target, ShardMessage& message) override {
    return mailboxes_.post(source_, target.value, message);
  }

 private:
  SimMailboxes& mailboxes_;
  std::uint32_t source_;
};

}  // namespace sarsen::sim
