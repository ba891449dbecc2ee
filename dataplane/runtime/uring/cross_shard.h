// Mailboxes between the reactors of one process, one per ordered pair of shards.
//
// Bounds     `capacity` messages per pair; post() answers `overloaded` beyond, and the poster tries
//            again later. At most kMessagesPerTurn of a mailbox run in one turn of its reader.
// Wake-up    One write to the target's eventfd, and only when the target sleeps.
// Lifecycle  Mailboxes are made before their reactors run and die after all of them ended; at their
//            end they are empty (assert).
// Threads    post() on the source's shard, run() of the message on the target's. After run() the
//            message is not touched: it may be answered and gone.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "dataplane/runtime/env.h"
#include "dataplane/runtime/uring/reactor.h"

namespace sarsen {

// A ring of pointers, one writer, one reader.
class Mailbox {
 public:
  static constexpr unsigned kMessagesPerTurn = 64;

  explicit Mailbox(std::size_t capacity);
  ~Mailbox();

  // Writer. False when full.
  bool push(ShardMessage& message);
  // Reader. nullptr when empty.
  ShardMessage* pop();
  bool empty() const { return tail_.load() == head_.load(std::memory_order_relaxed); }

 private:
  std::vector<ShardMessage*> ring_;  // a power of two
  // Counts, never wrapped back; on separate cache lines so that the two sides do not disturb.
  alignas(64) std::atomic<std::uint64_t> tail_{0};
  std::uint64_t head_seen_ = 0;  // the writer's last look at head_
  alignas(64) std::atomic<std::uint64_t> head_{0};
};

class UringCrossShard;

class MailboxGrid {
 public:
  MailboxGrid(std::uint32_t shard_count, std::size_t capacity);

  std::uint32_t shard_count() const { return shard_count_; }
  Mailbox& between(ShardId source, ShardId target) {
    return *mailboxes_[std::size_t{source.value} * shard_count_ + target.value];
  }

 private:
  friend class UringCrossShard;
  std::uint32_t shard_count_;
  std::vector<std::unique_ptr<Mailbox>> mailboxes_;
  std::vector<Reactor*> reactors_;
};

// The CrossShard of one shard, and the reader of its mailboxes. Made for every shard before any
// runs.
class UringCrossShard final : public CrossShard, public WorkSource {
 public:
  UringCrossShard(MailboxGrid& grid, ShardId self, Reactor& reactor);

  std::uint32_t shard_count() const override { return grid_.shard_count(); }
  Result<void> post(ShardId target, ShardMessage& message) override;

  bool pending() const override;
  void drain() override;

 private:
  MailboxGrid& grid_;
  ShardId self_;
};

}  // namespace sarsen
