#include "dataplane/runtime/uring/cross_shard.h"

#include <bit>

namespace sarsen {

Mailbox::Mailbox(std::size_t capacity) : ring_(std::bit_ceil(capacity)) {}

Mailbox::~Mailbox() {
  SARSEN_ASSERT(empty(), "a shard stops after its messages were answered");
}

bool Mailbox::push(ShardMessage& message) {
  const std::uint64_t tail = tail_.load(std::memory_order_relaxed);
  if (tail - head_seen_ == ring_.size()) {
    head_seen_ = head_.load(std::memory_order_acquire);
    if (tail - head_seen_ == ring_.size()) return false;
  }
  ring_[tail & (ring_.size() - 1)] = &message;
  // Sequentially consistent: the first half of the handshake of Reactor::notify().
  tail_.store(tail + 1);
  return true;
}

ShardMessage* Mailbox::pop() {
  const std::uint64_t head = head_.load(std::memory_order_relaxed);
  if (tail_.load(std::memory_order_acquire) == head) return nullptr;
  ShardMessage* const message = ring_[head & (ring_.size() - 1)];
  head_.store(head + 1, std::memory_order_release);
  return message;
}

MailboxGrid::MailboxGrid(std::uint32_t shard_count, std::size_t capacity)
    : shard_count_(shard_count), reactors_(shard_count) {
  for (std::size_t i = 0; i < std::size_t{shard_count} * shard_count; ++i) {
    mailboxes_.push_back(std::make_unique<Mailbox>(capacity));
  }
}

UringCrossShard::UringCrossShard(MailboxGrid& grid, ShardId self, Reactor& reactor)
    : grid_(grid), self_(self) {
  grid.reactors_[self.value] = &reactor;
  reactor.add_source(*this);
}

Result<void> UringCrossShard::post(ShardId target, ShardMessage& message) {
  SARSEN_ASSERT(target.value < grid_.shard_count(), "the target is a shard of this process");
  if (!grid_.between(self_, target).push(message)) {
    return fail(make_error(RuntimeError::overloaded, "the mailbox from shard " +
                                                         std::to_string(self_.value) + " to " +
                                                         std::to_string(target.value)));
  }
  grid_.reactors_[target.value]->notify();
  return {};
}

bool UringCrossShard::pending() const {
  for (std::uint32_t source = 0; source < grid_.shard_count(); ++source) {
    if (!grid_.between(ShardId(source), self_).empty()) return true;
  }
  return false;
}

void UringCrossShard::drain() {
  for (std::uint32_t source = 0; source < grid_.shard_count(); ++source) {
    Mailbox& mailbox = grid_.between(ShardId(source), self_);
    for (unsigned i = 0; i < Mailbox::kMessagesPerTurn; ++i) {
      ShardMessage* const message = mailbox.pop();
      if (message == nullptr) break;
      message->run();
    }
  }
}

}  // namespace sarsen
