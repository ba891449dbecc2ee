// ShardCalls: lets threads outside of the runtime (gRPC's) run coroutines on a shard and wait.
//
// Lifecycle  Made on the shard or before it runs. refuse() and then `co_await join()` on the shard,
//            before the destructor and after the last caller was told to go.
// Threads    run() from any thread but the shard's; it blocks until the coroutine has ended.
// Errors     run(): stopped, after refuse(). Beside what the coroutine gives.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "dataplane/base/result.h"
#include "dataplane/runtime/scope.h"
#include "dataplane/runtime/uring/reactor.h"

namespace sarsen::blockd {

class ShardCalls final : public WorkSource {
 public:
  explicit ShardCalls(Reactor& reactor) : reactor_(reactor), running_(reactor) {
    reactor.add_source(*this);
  }
  ~ShardCalls();

  // `make_task` is called on the shard, and what it captures dies on the caller's thread.
  template <typename T>
  Result<T> run(std::function<Task<Result<T>>()> make_task) {
    CallOf<T> call(std::move(make_task));
    SARSEN_TRY(submit(call));
    call.wait();
    return *std::move(call.result);
  }

  // On the shard.
  void refuse();
  Task<void> join() { return running_.join(); }

  bool pending() const override { return arrived_.load(); }
  void drain() override;

 private:
  class Call {
   public:
    virtual Task<void> execute() = 0;
    void wait();
    void finish();

   protected:
    ~Call() = default;

   private:
    std::mutex mutex_;
    std::condition_variable done_changed_;
    bool done_ = false;
  };
  template <typename T>
  struct CallOf final : Call {
    explicit CallOf(std::function<Task<Result<T>>()> make) : make_task(std::move(make)) {}
    Task<void> execute() override { return run_call(this); }
    static Task<void> run_call(CallOf* call) {
      call->result.emplace(co_await call->make_task());
      call->finish();
    }
    std::function<Task<Result<T>>()> make_task;
    std::optional<Result<T>> result;
  };

  Result<void> submit(Call& call);

  Reactor& reactor_;
  std::mutex mutex_;
  bool refusing_ = false;
  std::vector<Call*> queue_;
  std::atomic<bool> arrived_{false};
  Scope running_;
};

}  // namespace sarsen::blockd
