// ShardRunner: the shards of one process: a reactor on a thread each, with all that Env promises.
//
// Lifecycle  start() makes everything and reports what is missing before any `main` runs; each
// shard
//            runs `main` to its end; when the last has ended, all reactors stop; join() returns.
//            A shard whose main ended goes on answering the others until then.
// Stopping   request_stop(), from any thread or a signal handler, resumes whoever awaits
//            ShardContext::stop_requested(); `main` then closes what it opened and returns.
// Owns       reactors, arenas, mailboxes, the blocking threads. `main` owns its disks and
//            connections, and ends them before it returns (assert).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "dataplane/runtime/env.h"
#include "dataplane/runtime/uring/buffer_arena.h"
#include "dataplane/runtime/uring/reactor.h"
#include "dataplane/runtime/uring/uring_network.h"

namespace sarsen {

struct ShardRunnerOptions {
  std::uint32_t shard_count = 1;
  // One per shard to pin them, or empty. Takes the place of reactor.thread.cpu.
  std::vector<unsigned> cpus;
  ReactorOptions reactor;      // the thread's name gets the shard's number
  BufferArenaOptions buffers;  // per shard
  NetworkOptions network;
  std::size_t mailbox_capacity = 256;
  unsigned blocking_threads = 2;  // for the process
};

// The way a stop request reaches a shard.
class StopSignal final : public WorkSource {
 public:
  // co_await returns once a stop was requested; any number may wait.
  class Waiter : public ListNode {
   public:
    explicit Waiter(StopSignal& signal) : signal_(signal) {}
    bool await_ready() const { return signal_.delivered_; }
    void await_suspend(std::coroutine_handle<> handle) {
      handle_ = handle;
      signal_.waiters_.push_back(*this);
    }
    void await_resume() const {}

   private:
    friend class StopSignal;
    StopSignal& signal_;
    std::coroutine_handle<> handle_;
  };

  explicit StopSignal(Reactor& reactor) : reactor_(reactor) { reactor.add_source(*this); }
  // Any thread, and signal handlers.
  void request() {
    requested_.store(true);
    reactor_.notify();
  }

  bool pending() const override { return !delivered_ && requested_.load(); }
  void drain() override;

 private:
  Reactor& reactor_;
  std::atomic<bool> requested_{false};
  bool delivered_ = false;
  IntrusiveList<Waiter> waiters_;
};

// What a shard's main is given. Outlives it.
struct ShardContext {
  Env& env;
  Reactor& reactor;  // for open_disk()
  StopSignal& stop_signal;

  StopSignal::Waiter stop_requested() const { return StopSignal::Waiter(stop_signal); }
};

class ShardRunner {
 public:
  // Called once on each shard. Give a function, not a capturing lambda that is a coroutine.
  using Main = std::function<Task<void>(ShardContext)>;

  // Errors: those of check_io_uring(), memlock_too_low, and of ThreadOptions. On error nothing
  // runs.
  static Result<std::unique_ptr<ShardRunner>> start(ShardRunnerOptions options, Main main);
  // Joins.
  ~ShardRunner();

  void request_stop();
  // Until every main has ended. One caller, once.
  void join();

  // For metrics, after join().
  const ReactorCounters& counters(ShardId shard) const;

 private:
  struct Shard;
  class StartGate;

  ShardRunner(ShardRunnerOptions options, Main main);
  Result<void> make_shards();
  Result<void> start_threads();
  void run_shard(Shard& shard);
  Task<void> run_main(Shard* shard);
  void main_ended();

  ShardRunnerOptions options_;
  Main main_;
  // Declared so that threads end before shards, and shards before what they share.
  struct Shared;
  std::unique_ptr<Shared> shared_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::atomic<std::uint32_t> mains_running_{0};
};

}  // namespace sarsen
