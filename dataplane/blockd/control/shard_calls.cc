#include "dataplane/blockd/control/shard_calls.h"

#include "dataplane/runtime/error.h"

namespace sarsen::blockd {

ShardCalls::~ShardCalls() {
  SARSEN_ASSERT(queue_.empty(), "calls are refused and awaited before their shard ends");
}

void ShardCalls::Call::wait() {
  std::unique_lock lock(mutex_);
  done_changed_.wait(lock, [this] { return done_; });
}

void ShardCalls::Call::finish() {
  // Under the lock, because the waiter destroys this as soon as it sees `done_`.
  const std::lock_guard lock(mutex_);
  done_ = true;
  done_changed_.notify_all();
}

Result<void> ShardCalls::submit(Call& call) {
  {
    const std::lock_guard lock(mutex_);
    if (refusing_) return fail(make_error(RuntimeError::stopped, "blockd ends"));
    queue_.push_back(&call);
    arrived_.store(true);
  }
  reactor_.notify();
  return {};
}

void ShardCalls::refuse() {
  {
    const std::lock_guard lock(mutex_);
    refusing_ = true;
  }
  drain();
}

void ShardCalls::drain() {
  std::vector<Call*> arrived;
  {
    const std::lock_guard lock(mutex_);
    arrived.swap(queue_);
    arrived_.store(false);
  }
  for (Call* call : arrived) running_.spawn(call->execute());
}

}  // namespace sarsen::blockd
