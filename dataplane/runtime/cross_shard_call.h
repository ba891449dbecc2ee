// Calls between the shards of one process: runs a task on another shard and gives its value here.
//
//   Task<Result<Usage>> DeviceView::usage(ShardId owner) {
//     return call_on(calls_, owner, [device = device_](Env& env) { return read_usage(&env, device);
//     });
//   }
//
// Every shard has a CrossShardService: it runs the tasks of the others in a scope of its own and
// counts the calls that its shard makes. The services of a process find each other in a
// CrossShardGroup. The callable and the value live in the caller's frame: the callable is run, the
// value is made, on the target shard, and both are destroyed on the caller's; so neither may hold
// anything that belongs to one shard (Units, locks, tasks, buffers of a pool).
//
// Lifecycle  Make the group, then on each shard its service; calls may begin when all are made.
// Then
//            `co_await stop()` on every shard: it refuses new calls, from both sides, and awaits
//            those in progress. Destroy a service only when all of them have stopped: until then
//            another shard may still send, and is answered `stopped`.
// Bounded by CrossShardLimits, and the mailboxes. When a mailbox is full the sender waits and tries
//            again; a request gives up after post_attempts_max, an answer never does.
// Errors     overloaded: the mailbox stayed full, or calls_running_max run on the target. stopped:
// one
//            side is stopping. not_found: no service on that shard. Beside those of the task.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "dataplane/runtime/env.h"
#include "dataplane/runtime/event.h"
#include "dataplane/runtime/gate.h"
#include "dataplane/runtime/scope.h"
#include "dataplane/runtime/task.h"

namespace sarsen {

class CrossShardService;

struct CrossShardLimits {
  std::uint32_t calls_running_max = 1024;  // of other shards, on one shard
  std::uint32_t post_attempts_max = 200;
  // Doubled from attempt to attempt, up to the second: 200 attempts are about 2 s.
  Duration post_delay_first = microseconds(10);
  Duration post_delay_max = milliseconds(10);
};

// Where the services of one process find each other. Outlives them.
class CrossShardGroup {
 public:
  explicit CrossShardGroup(std::uint32_t shard_count) : services_(shard_count) {}

 private:
  friend class CrossShardService;
  // Atomic, because each shard's thread enters its own.
  std::vector<std::atomic<CrossShardService*>> services_;
};

namespace cross_shard_internal {

// The target's view of a call. Lives in the caller's frame until it was answered.
class IncomingCall {
 public:
  IncomingCall(ShardId source, ShardMessage& answer) : source_(source), answer_(answer) {}
  IncomingCall(const IncomingCall&) = delete;
  IncomingCall& operator=(const IncomingCall&) = delete;
  virtual Task<void> execute(Env& env) = 0;
  virtual void refuse(RuntimeError reason) = 0;
  ShardId source() const { return source_; }
  ShardMessage& answer() { return answer_; }

 protected:
  ~IncomingCall() = default;

 private:
  const ShardId source_;
  ShardMessage& answer_;  // what is posted to `source` at the end; then this object is gone
};

}  // namespace cross_shard_internal

class CrossShardService {
 public:
  // One per shard, made on it. Borrows both.
  CrossShardService(Env& env, CrossShardGroup& group, CrossShardLimits limits = {});
  CrossShardService(const CrossShardService&) = delete;
  CrossShardService& operator=(const CrossShardService&) = delete;
  ~CrossShardService();

  Task<void> stop();

  Env& env() const { return env_; }

  // The rest is for call_on().
  Result<Gate::Holder> begin_call() { return calling_.hold(); }
  // The service of another shard, or nullptr.
  CrossShardService* find(ShardId shard) const;
  // Posts, waiting for room. Error: overloaded, after post_attempts_max attempts.
  Task<Result<void>> post(ShardId target, ShardMessage* message);
  // On this shard, from the mailbox.
  void accept(cross_shard_internal::IncomingCall& call);

 private:
  Task<void> serve(cross_shard_internal::IncomingCall* call);
  Task<void> answer(ShardId source, ShardMessage* message);

  Env& env_;
  CrossShardGroup& group_;
  const CrossShardLimits limits_;
  bool stopping_ = false;
  std::uint32_t running_ = 0;
  Gate calling_;
  Scope serving_;
};

namespace cross_shard_internal {

// A call answers with what its task gives, in a Result unless it is one already.
template <typename T>
struct AnswerOf {
  using Type = Result<T>;
};
template <typename T>
struct AnswerOf<Result<T>> {
  using Type = Result<T>;
};
template <typename T>
struct ValueOf;
template <typename T>
struct ValueOf<Task<T>> {
  using Type = T;
};
template <typename MakeTask>
using TaskValue = typename ValueOf<std::invoke_result_t<MakeTask&, Env&>>::Type;
template <typename MakeTask>
using Answer = typename AnswerOf<TaskValue<MakeTask>>::Type;

template <typename MakeTask>
class Call final : public IncomingCall {
 public:
  Call(CrossShardService& from, CrossShardService& to, MakeTask make_task)
      : IncomingCall(from.env().shard, answer_),
        request_(to, *this),
        answer_(from.env().executor),
        make_task_(std::move(make_task)) {}

  ShardMessage& request() { return request_; }
  Event::Wait answered() { return answer_.arrived.wait(); }
  Answer<MakeTask> take() { return *std::move(value_); }

 private:
  struct Request final : ShardMessage {
    Request(CrossShardService& service, IncomingCall& incoming) : to(service), call(incoming) {}
    void run() override { to.accept(call); }
    CrossShardService& to;
    IncomingCall& call;
  };
  struct AnswerMessage final : ShardMessage {
    explicit AnswerMessage(Executor& executor) : arrived(executor) {}
    void run() override { arrived.set(); }
    Event arrived;
  };

  Task<void> execute(Env& env) override { return run(this, &env); }
  static Task<void> run(Call* call, Env* env) {
    if constexpr (std::is_void_v<TaskValue<MakeTask>>) {
      co_await call->make_task_(*env);
      call->value_.emplace();
    } else {
      call->value_.emplace(co_await call->make_task_(*env));
    }
  }
  void refuse(RuntimeError reason) override { value_.emplace(fail(make_error(reason))); }

  Request request_;
  AnswerMessage answer_;
  MakeTask make_task_;
  std::optional<Answer<MakeTask>> value_;
};

template <typename MakeTask>
Task<Answer<MakeTask>> run_call(CrossShardService* from, ShardId target, MakeTask make_task) {
  auto hold = from->begin_call();
  if (!hold) co_return fail(std::move(hold).error());
  if (target == from->env().shard) {
    if constexpr (std::is_void_v<TaskValue<MakeTask>>) {
      co_await make_task(from->env());
      co_return {};
    } else {
      co_return co_await make_task(from->env());
    }
  }
  CrossShardService* const to = from->find(target);
  if (to == nullptr) co_return fail(make_error(RuntimeError::not_found, "no service on the shard"));
  Call<MakeTask> call(*from, *to, std::move(make_task));
  SARSEN_CO_TRY(co_await from->post(target, &call.request()));
  co_await call.answered();
  co_return call.take();
}

}  // namespace cross_shard_internal

// Runs make_task(env of the target), a Task<T>, on `target` and gives Result<T>; when T is a Result
// itself, gives T. On the own shard the task is simply awaited.
template <typename MakeTask>
Task<cross_shard_internal::Answer<MakeTask>> call_on(CrossShardService& from, ShardId target,
                                                     MakeTask make_task) {
  return cross_shard_internal::run_call(&from, target, std::move(make_task));
}

}  // namespace sarsen
