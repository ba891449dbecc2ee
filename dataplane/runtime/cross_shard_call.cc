#include "dataplane/runtime/cross_shard_call.h"

#include <algorithm>

namespace sarsen {

using cross_shard_internal::IncomingCall;

CrossShardService::CrossShardService(Env& env, CrossShardGroup& group, CrossShardLimits limits)
    : env_(env), group_(group), limits_(limits), calling_(env.executor), serving_(env.executor) {
  SARSEN_ASSERT(env.shard.value < group.services_.size(), "the group has a place for each shard");
  group_.services_[env.shard.value].store(this, std::memory_order_release);
}

CrossShardService::~CrossShardService() {
  group_.services_[env_.shard.value].store(nullptr, std::memory_order_release);
}

CrossShardService* CrossShardService::find(ShardId shard) const {
  if (shard.value >= group_.services_.size()) return nullptr;
  return group_.services_[shard.value].load(std::memory_order_acquire);
}

Task<void> CrossShardService::stop() {
  stopping_ = true;
  // The calls of this shard first: they end when the others answer, which they also do while
  // stopping.
  co_await calling_.close();
  co_await serving_.join();
}

Task<Result<void>> CrossShardService::post(ShardId target, ShardMessage* message) {
  Duration delay = limits_.post_delay_first;
  for (std::uint32_t attempt = 1;; ++attempt) {
    Result<void> posted = env_.cross_shard.post(target, *message);
    if (posted || attempt >= limits_.post_attempts_max) co_return posted;
    co_await env_.clock.sleep(delay);
    delay = std::min(delay * 2, limits_.post_delay_max);
  }
}

void CrossShardService::accept(IncomingCall& call) {
  if (!stopping_ && running_ < limits_.calls_running_max) {
    serving_.spawn(serve(&call));
    return;
  }
  call.refuse(stopping_ ? RuntimeError::stopped : RuntimeError::overloaded);
  serving_.spawn(answer(call.source(), &call.answer()));
}

Task<void> CrossShardService::serve(IncomingCall* call) {
  ++running_;
  co_await call->execute(env_);
  --running_;
  co_await answer(call->source(), &call->answer());
}

// After the post, the caller's frame, the message and the call in it may be gone.
Task<void> CrossShardService::answer(ShardId source, ShardMessage* message) {
  while (!env_.cross_shard.post(source, *message))
    co_await env_.clock.sleep(limits_.post_delay_max);
}

}  // namespace sarsen
