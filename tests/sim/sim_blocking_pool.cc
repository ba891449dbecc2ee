#include "tests/sim/sim_blocking_pool.h"

#include <utility>

#include "tests/sim/sim_node.h"

namespace sarsen::sim {
namespace {
constexpr std::uint64_t kStart = 0;
constexpr std::uint64_t kFinish = 1;
}  // namespace

void SimBlockingPool::submit(BlockingJob& job) {
  if (stopped_) return;
  queued_.push_back(job);
  if (event_ == 0) post_start();
}

void SimBlockingPool::post_start() {
  const Duration wake_up(static_cast<std::int64_t>(rng_.below(10'000)));
  event_ = simulator_.post(wake_up, EventKind::blocking_start, executor_.place(), *this, kStart);
}

void SimBlockingPool::on_event(std::uint64_t argument) {
  event_ = 0;
  if (executor_.paused()) {
    event_ = simulator_.post(executor_.paused_until() - simulator_.now(), EventKind::blocking_start,
                             executor_.place(), *this, argument);
    return;
  }
  if (argument == kStart) {
    run_next();
  } else {
    finish();
  }
}

void SimBlockingPool::run_next() {
  if (queued_.empty()) return;  // withdrawn
  ran_ = &queued_.pop_front();
  (void)node_.take_blocking_time();
  node_.set_in_job(true);
  ran_->run();
  node_.set_in_job(false);
  if (node_.doomed()) return;  // its I/O met a crash: nobody will hear of the result
  const Duration cpu(static_cast<std::int64_t>(rng_.below(20'000)));
  event_ = simulator_.post(Duration(node_.take_blocking_time().value + cpu.value),
                           EventKind::blocking_done, executor_.place(), *this, kFinish);
}

void SimBlockingPool::finish() {
  BlockingJob* job = std::exchange(ran_, nullptr);
  if (!queued_.empty()) post_start();
  if (job != nullptr) executor_.deliver(job->waiter);
}

void SimBlockingPool::withdraw(BlockingJob& job) {
  if (ran_ == &job) ran_ = nullptr;
  job.unlink();
}

void SimBlockingPool::stop() {
  stopped_ = true;
  simulator_.cancel(event_);
  event_ = 0;
}

}  // namespace sarsen::sim
