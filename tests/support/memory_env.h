// A whole Env in memory for unit tests and fuzz targets: one thread, virtual time, no chance.
//
// Ready coroutines run in FIFO order, or in an order drawn from a seed; connections are lossless
// pipes with little room; time moves only when a test moves it. For faults use the simulator.
#pragma once

#include <coroutine>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "dataplane/base/rng.h"
#include "dataplane/runtime/env.h"
#include "dataplane/runtime/scope.h"

namespace sarsen::test {

class MemoryExecutor final : public Executor {
 public:
  void schedule(std::coroutine_handle<> handle) override { ready_.push_back(handle); }
  // Resumes what is ready until nothing is.
  void run_until_idle();
  // From now on the next coroutine is any of those that are ready.
  void shuffle(std::uint64_t seed) { order_.emplace(seed); }

 private:
  std::optional<Rng> order_;
  std::deque<std::coroutine_handle<>> ready_;
};

class MemoryClock final : public Clock {
 public:
  explicit MemoryClock(Executor& executor) : executor_(executor) {}
  BootTime now() const override { return now_; }
  std::int64_t wall_time_ns() const override { return now_.value; }
  // Moves time and makes the sleepers ready whose time came.
  void advance(Duration duration);

 protected:
  void submit(SleepOperation& operation) override { sleeping_.push_back(operation); }
  void withdraw(SleepOperation& operation, bool resume) override;

 private:
  Executor& executor_;
  BootTime now_{1'000'000'000};
  IntrusiveList<SleepOperation> sleeping_;
};

class MemoryBuffers final : public BufferPool {
 public:
  explicit MemoryBuffers(std::size_t bytes_max) : bytes_max_(bytes_max) {}
  Result<Buffer> allocate(std::size_t bytes) override;
  std::size_t bytes_used() const { return bytes_used_; }
  std::size_t bytes_used_most() const { return bytes_used_most_; }

 protected:
  void release(std::byte* data, std::size_t size) override;

 private:
  std::size_t bytes_max_;
  std::size_t bytes_used_ = 0;
  std::size_t bytes_used_most_ = 0;
};

struct MemoryPipe;

class MemoryNetwork final : public Network {
 public:
  // A connection holds at most `pipe_bytes` that were sent and not received, each way; a receive
  // gives at most `receive_bytes`.
  MemoryNetwork(Executor& executor, std::size_t pipe_bytes, std::size_t receive_bytes)
      : executor_(executor), pipe_bytes_(pipe_bytes), receive_bytes_(receive_bytes) {}
  Result<std::unique_ptr<Listener>> listen(Address address) override;
  Task<Result<std::unique_ptr<Connection>>> connect(Address address) override;
  // Both ends of a connection that nobody listened for.
  std::pair<std::unique_ptr<Connection>, std::unique_ptr<Connection>> pair();
  void set_receive_bytes(std::size_t bytes) { receive_bytes_ = bytes; }

  class MemoryListener;

 private:
  Executor& executor_;
  std::size_t pipe_bytes_;
  std::size_t receive_bytes_;
  std::map<Address, MemoryListener*> listeners_;
};

class MemoryRandom final : public Random {
 public:
  std::uint64_t next() override { return rng_.next(); }
  void fill(std::span<std::byte> into) override {
    for (auto& byte : into) byte = static_cast<std::byte>(rng_.next());
  }

 private:
  Rng rng_{1};
};

struct MemoryEnvLimits {
  std::size_t buffer_bytes = 256u << 20;
  std::size_t pipe_bytes = 64u << 10;
  std::size_t receive_bytes = 64u << 10;
};

class MemoryEnv {
 public:
  explicit MemoryEnv(MemoryEnvLimits limits = {})
      : clock(executor),
        buffers(limits.buffer_bytes),
        network(executor, limits.pipe_bytes, limits.receive_bytes) {}

  // Drives `task` to its end, which must come without time moving.
  template <typename T>
  T run(Task<T> task) {
    std::optional<T> result;
    Scope scope(executor);
    scope.spawn(keep(std::move(task), &result));
    executor.run_until_idle();
    SARSEN_ASSERT(result, "the task waits for something that does not come by itself");
    return std::move(*result);
  }
  void run(Task<void> task) {
    Scope scope(executor);
    scope.spawn(std::move(task));
    executor.run_until_idle();
    SARSEN_ASSERT(scope.size() == 0, "the task waits for something that does not come by itself");
  }
  void run_until_idle() { executor.run_until_idle(); }
  void advance(Duration duration) {
    clock.advance(duration);
    executor.run_until_idle();
  }

  MemoryExecutor executor;
  MemoryClock clock;
  MemoryBuffers buffers;
  MemoryNetwork network;
  MemoryRandom random;

 private:
  template <typename T>
  static Task<void> keep(Task<T> task, std::optional<T>* result) {
    result->emplace(co_await std::move(task));
  }
  struct OneShard final : CrossShard {
    std::uint32_t shard_count() const override { return 1; }
    Result<void> post(ShardId, ShardMessage&) override {
      return fail(make_error(RuntimeError::bad_argument, "there is one shard"));
    }
  };
  struct NoThreads final : BlockingPool {
    void submit(BlockingJob&) override { SARSEN_ASSERT(false, "no threads in a MemoryEnv"); }
    void withdraw(BlockingJob&) override {}
  };
  OneShard one_shard_;
  NoThreads no_threads_;
  FaultPoints faults_;

 public:
  Env env{ShardId(0), executor, clock, random, network, buffers, one_shard_, no_threads_, faults_};
};

}  // namespace sarsen::test
