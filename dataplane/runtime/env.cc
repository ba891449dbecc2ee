#include "dataplane/runtime/env.h"

namespace sarsen {

bool SleepOperation::await_ready() const {
  return clock_.now() >= deadline_;
}

void SleepOperation::await_suspend(std::coroutine_handle<> waiter) {
  waiter_ = waiter;
  pending_ = true;
  clock_.submit(*this);
}

void SleepOperation::cancel() {
  if (!pending_) return;
  pending_ = false;
  cancelled_ = true;
  clock_.withdraw(*this, /*resume=*/true);
}

void SleepOperation::submit(BootTime deadline) {
  withdraw();
  deadline_ = deadline;
  pending_ = true;
  clock_.submit(*this);
}

void SleepOperation::withdraw() {
  if (!pending_) return;
  pending_ = false;
  clock_.withdraw(*this, /*resume=*/false);
}

SleepOperation::~SleepOperation() {
  if (pending_) clock_.withdraw(*this, /*resume=*/false);
}

void DiskOperation::await_suspend(std::coroutine_handle<> waiter) {
  waiter_ = waiter;
  pending_ = true;
  disk_.submit(*this);
}

DiskOperation::~DiskOperation() {
  if (pending_) disk_.withdraw(*this);
}

}  // namespace sarsen
