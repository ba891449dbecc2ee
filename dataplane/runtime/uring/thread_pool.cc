#include "dataplane/runtime/uring/thread_pool.h"

#include <utility>

#include <pthread.h>

#include "dataplane/runtime/uring/signal_mask.h"

namespace sarsen {

ThreadPool::ThreadPool(unsigned thread_count, std::string name) {
  const BlockedSignals blocked;  // inherited: signals are for the main thread
  for (unsigned i = 0; i < thread_count; ++i) {
    threads_.emplace_back([this] { work(); });
    const std::string shown = name.substr(0, 12) + "/" + std::to_string(i);
    pthread_setname_np(threads_.back().native_handle(), shown.substr(0, 15).c_str());
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  available_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void ThreadPool::submit(Item item) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(item);
  }
  available_.notify_one();
}

void ThreadPool::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    available_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const Item item = queue_.front();
    queue_.pop_front();
    lock.unlock();
    item.job->run();
    item.origin->reply(*item.job);
    lock.lock();
  }
}

UringBlockingPool::UringBlockingPool(ThreadPool& threads, Reactor& reactor)
    : threads_(threads), reactor_(reactor) {
  reactor.add_source(*this);
}

UringBlockingPool::~UringBlockingPool() {
  SARSEN_ASSERT(outstanding_ == 0, "a shard stops after its blocking jobs ended");
}

void UringBlockingPool::submit(BlockingJob& job) {
  ++outstanding_;
  threads_.submit({&job, this});
}

void UringBlockingPool::withdraw(BlockingJob&) {
  SARSEN_ASSERT(false, "the frame of a blocking job dies after the job");
}

void UringBlockingPool::reply(BlockingJob& job) {
  // notify() is under the lock too: drain() takes it before it resumes the job, so this shard
  // cannot have stopped and gone while this thread still uses its reactor.
  const std::lock_guard lock(mutex_);
  replies_.push_back(job);
  replied_.store(true);
  reactor_.notify();
}

void UringBlockingPool::drain() {
  IntrusiveList<BlockingJob> ended;
  {
    const std::lock_guard lock(mutex_);
    ended.splice_back(replies_);
    replied_.store(false);
  }
  while (!ended.empty()) {
    BlockingJob& job = ended.pop_front();
    --outstanding_;
    reactor_.resume(job.waiter);
  }
}

}  // namespace sarsen
