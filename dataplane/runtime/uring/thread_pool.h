// Threads for libraries that block, and the way back to the shard that asked.
//
// ThreadPool         The threads and one queue, shared by the shards of a process. Not bounded:
// each
//                    job lives in a suspended frame of its submitter, which bounds what it submits.
// UringBlockingPool  The BlockingPool of one shard on a ThreadPool. Replies are linked through the
//                    jobs themselves: the way back never allocates, never fills and never blocks.
// Lifecycle          ThreadPool's destructor runs what is queued and joins. A UringBlockingPool
// dies
//                    with no job outstanding (assert), before its reactor.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "dataplane/runtime/env.h"
#include "dataplane/runtime/uring/reactor.h"

namespace sarsen {

class UringBlockingPool;

class ThreadPool {
 public:
  // One thread keeps the order of submission. `name` shows in ps and top (at most 12 characters).
  ThreadPool(unsigned thread_count, std::string name);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

 private:
  friend class UringBlockingPool;
  struct Item {
    BlockingJob* job;
    UringBlockingPool* origin;
  };
  void submit(Item item);
  void work();

  std::mutex mutex_;
  std::condition_variable available_;
  std::deque<Item> queue_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

class UringBlockingPool final : public BlockingPool, public WorkSource {
 public:
  UringBlockingPool(ThreadPool& threads, Reactor& reactor);
  ~UringBlockingPool();

  bool pending() const override { return replied_.load(); }
  void drain() override;

 private:
  friend class ThreadPool;
  void submit(BlockingJob& job) override;
  void withdraw(BlockingJob& job) override;
  // On a pool thread; the job is not touched afterwards.
  void reply(BlockingJob& job);

  ThreadPool& threads_;
  Reactor& reactor_;
  std::uint64_t outstanding_ = 0;
  std::mutex mutex_;
  IntrusiveList<BlockingJob> replies_;
  std::atomic<bool> replied_{false};
};

}  // namespace sarsen
