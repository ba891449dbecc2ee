// Reactor: one shard's thread: run queue, timers and one io_uring.
//
// Lifecycle  create() on any thread (start-up errors are answered there); run() on the thread of
// the
//            shard, always the same one; stop() ends run(). Destroyed after run() returned.
// Turn       submit what was prepared and take completions with one io_uring_enter, which also
// waits
//            when nothing else is to do; resume what completed; drain mailboxes; expire timers; run
//            the queue. Each step is bounded, so none starves another.
// Waiting    blocks at once by default. With a spin window (only for cores that belong to the shard
//            alone) it looks for work for that long before it blocks.
// Threads    everything belongs to the shard's thread, except stop() and notify().
// Borrows    completions, sleeps and work sources, until they completed or were removed.
#pragma once

#include <atomic>
#include <coroutine>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <liburing.h>

#include "dataplane/runtime/env.h"
#include "dataplane/runtime/uring/thread_options.h"
#include "dataplane/runtime/uring/timer_heap.h"

namespace sarsen {

struct ReactorOptions {
  unsigned submission_entries = 256;
  unsigned completion_entries = 4096;
  unsigned registered_files = 1024;  // table size; RLIMIT_NOFILE caps it
  Duration spin_window{0};           // look for work this long before blocking
  Duration stall_threshold = milliseconds(25);
  // Called after a turn that took `stall_threshold` or longer. Default: a warning in the log.
  std::function<void(Duration)> on_stall;
  ThreadOptions thread;
};

struct ReactorCounters {
  std::uint64_t turns = 0;
  std::uint64_t resumes = 0;      // of coroutines
  std::uint64_t submissions = 0;  // entries given to the ring
  std::uint64_t completions = 0;
  std::uint64_t system_calls = 0;  // io_uring_enter
  std::uint64_t waits = 0;         // of those, the ones that could block
  std::uint64_t spins = 0;         // spin windows entered
  std::uint64_t stalls = 0;
  Duration stall_longest{0};
};

// The receiver of the completions of one submission.
class RingCompletion {
 public:
  // `result` is a count or a negative errno; `flags` are IORING_CQE_F_*. May destroy the receiver.
  virtual void complete(std::int32_t result, std::uint32_t flags) = 0;

 protected:
  ~RingCompletion() = default;
};

// Work that arrives from other threads. Whoever brings it calls Reactor::notify() afterwards.
class WorkSource : public ListNode {
 public:
  // True when drain() has something to do. Loads must be sequentially consistent.
  virtual bool pending() const = 0;
  // Does a bounded amount of it.
  virtual void drain() = 0;

 protected:
  ~WorkSource() = default;
};

class Reactor final : public Executor, public Clock {
 public:
  static Result<std::unique_ptr<Reactor>> create(ReactorOptions options);
  ~Reactor() override;

  // Makes the calling thread the shard's: applies ThreadOptions, enables the ring. run() does it
  // too.
  Result<void> attach();
  // Until stop(), and until every submission has completed. attach() must have succeeded.
  void run();
  // Runs `main` and returns when it has ended.
  void run_task(Task<void> main);
  // Any thread, and signal handlers. A stop before run() makes run() return at once.
  void stop();
  // Any thread, and signal handlers: wakes the shard if it sleeps.
  void notify();

  // Executor.
  void schedule(std::coroutine_handle<> handle) override { ready_.push_back(handle); }
  // Clock.
  BootTime now() const override;
  std::int64_t wall_time_ns() const override;

  // For implementations of the seam -----------------------------------------------------------

  // Resumes at once, on the caller's stack: from complete() and drain() only.
  void resume(std::coroutine_handle<> handle) {
    ++counters_.resumes;
    handle.resume();
  }
  // Prepares a submission: `prepare(io_uring_sqe&)` fills it. It leaves with the next enter.
  template <typename Prepare>
  void submit(RingCompletion& receiver, Prepare&& prepare) {
    io_uring_sqe& entry = next_entry();
    prepare(entry);
    io_uring_sqe_set_data(&entry, &receiver);
    ++outstanding_;
  }
  // The same with a time limit: the receiver sees -ECANCELED when it passes first.
  template <typename Prepare>
  void submit_with_timeout(RingCompletion& receiver, __kernel_timespec& limit, Prepare&& prepare) {
    reserve(2);
    submit(receiver, [&](io_uring_sqe& entry) {
      prepare(entry);
      entry.flags |= IOSQE_IO_LINK;
    });
    submit_ignored([&](io_uring_sqe& e) { io_uring_prep_link_timeout(&e, &limit, 0); });
  }

  // A slot of the registered file table, or -1 when it is full (then the descriptor is used as is).
  int register_file(int descriptor);
  void unregister_file(int slot);
  // Makes `memory` (one region, once) usable for fixed I/O. Gives 0 or an errno value.
  int register_buffers(std::span<std::byte> memory);
  // The index for fixed I/O on [data, data+size), or -1.
  int fixed_buffer_index(const std::byte* data, std::uint64_t size) const;

  void add_source(WorkSource& source) { sources_.push_back(source); }

  const ReactorOptions& options() const { return options_; }
  const ReactorCounters& counters() const { return counters_; }
  // Submissions that have not completed.
  std::uint64_t outstanding() const { return outstanding_; }

 private:
  explicit Reactor(ReactorOptions options);

  // The multishot poll on the wake-up descriptor.
  struct WakePoll final : RingCompletion {
    explicit WakePoll(Reactor& owner) : reactor(owner) {}
    void complete(std::int32_t result, std::uint32_t flags) override;
    Reactor& reactor;
  };

  // Clock.
  void submit(SleepOperation& operation) override { timers_.insert(operation); }
  void withdraw(SleepOperation& operation, bool resume) override;

  template <typename Prepare>
  void submit_ignored(Prepare&& prepare) {
    io_uring_sqe& entry = next_entry();
    prepare(entry);
    io_uring_sqe_set_data(&entry, nullptr);
  }
  io_uring_sqe& next_entry();
  void reserve(unsigned entries);
  void arm_wake_poll();

  bool finished() const;
  void turn();
  void enter();
  void wait();
  void enter_without_waiting();
  bool spin();
  bool work_is_pending();
  WorkSource* first_source() { return sources_.empty() ? nullptr : &sources_.front(); }
  bool kernel_has_completions() const;
  void reap_completions();
  void drain_sources();
  void expire_timers(BootTime now);
  void run_ready();
  void note_turn_length(Duration length);
  void detach();

  ReactorOptions options_;
  ReactorCounters counters_;
  io_uring ring_{};
  bool ring_exists_ = false;
  bool ring_enabled_ = false;
  bool attached_ = false;
  int wake_descriptor_ = -1;
  WakePoll wake_poll_{*this};
  std::uint64_t outstanding_ = 0;
  std::vector<int> free_file_slots_;
  std::span<std::byte> fixed_memory_;
  TimerHeap timers_;
  std::vector<std::coroutine_handle<>> ready_;
  std::vector<std::coroutine_handle<>> running_;
  IntrusiveList<WorkSource> sources_;
  alignas(64) std::atomic<bool> sleeping_{false};
  std::atomic<bool> stop_{false};
};

}  // namespace sarsen
