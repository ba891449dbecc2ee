#include "dataplane/runtime/uring/reactor.h"

#include <algorithm>
#include <array>

#include <errno.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "dataplane/runtime/scope.h"
#include "dataplane/runtime/uring/ring_setup.h"
#include "dataplane/runtime/uring/system_check.h"

namespace sarsen {
namespace {

constexpr unsigned kCompletionsPerTurn = 256;
constexpr unsigned kTimersPerTurn = 256;
constexpr std::int64_t kNanosecondsPerSecond = 1'000'000'000;
// The kernel takes at most this much as one registered buffer.
constexpr std::uint64_t kFixedBufferBytesMax = kGiB;

std::int64_t read_clock(clockid_t id) {
  timespec time{};
  clock_gettime(id, &time);
  return time.tv_sec * kNanosecondsPerSecond + time.tv_nsec;
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Warns at most once a second: a machine that is short of processors stalls every shard all the
// time.
class StallLog {
 public:
  explicit StallLog(std::string shard) : shard_(std::move(shard)) {}

  void operator()(Duration length) {
    const std::int64_t now = read_clock(CLOCK_BOOTTIME);
    if (now < quiet_until_) {
      ++unreported_;
      return;
    }
    spdlog::warn("{}: one turn of the event loop took {} ms ({} more stalls since the last report)",
                 shard_, length.value / 1'000'000, std::exchange(unreported_, 0));
    quiet_until_ = now + kNanosecondsPerSecond;
  }

 private:
  std::string shard_;
  std::int64_t quiet_until_ = 0;
  std::uint64_t unreported_ = 0;
};

}  // namespace

// ------------------------------------------------------------------------------- start and end

Reactor::Reactor(ReactorOptions options) : options_(std::move(options)) {
  if (!options_.on_stall) options_.on_stall = StallLog(options_.thread.name);
}

Result<std::unique_ptr<Reactor>> Reactor::create(ReactorOptions options) {
  std::unique_ptr<Reactor> reactor(new Reactor(std::move(options)));
  const RingSizes sizes{reactor->options_.submission_entries, reactor->options_.completion_entries};
  if (const int error = set_up_ring(reactor->ring_, sizes); error != 0) {
    return fail(explain_ring_setup(error, read_system_facts()));
  }
  reactor->ring_exists_ = true;
  reactor->wake_descriptor_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (reactor->wake_descriptor_ < 0) return fail(error_from_errno(errno, "eventfd"));

  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const auto files =
      static_cast<unsigned>(std::min<rlim_t>(reactor->options_.registered_files, limit.rlim_cur));
  if (files > 0) {
    if (const int error = -io_uring_register_files_sparse(&reactor->ring_, files); error != 0) {
      return fail(error_from_errno(
          error, "register a table of " + std::to_string(files) + " files with io_uring"));
    }
  }
  for (unsigned slot = files; slot > 0; --slot) {
    reactor->free_file_slots_.push_back(static_cast<int>(slot - 1));
  }
  return reactor;
}

Reactor::~Reactor() {
  SARSEN_ASSERT(outstanding_ == 0, "a reactor is destroyed after its I/O has ended");
  SARSEN_ASSERT(timers_.empty() && ready_.empty(), "a reactor outlives its coroutines");
  if (ring_exists_) io_uring_queue_exit(&ring_);
  if (wake_descriptor_ >= 0) close(wake_descriptor_);
}

Result<void> Reactor::attach() {
  if (attached_) return {};
  SARSEN_TRY(apply_thread_options(options_.thread));
  if (!ring_enabled_) {
    if (const int error = enable_ring(ring_); error != 0) {
      return fail(error_from_errno(error, "enable the io_uring of a shard"));
    }
    ring_enabled_ = true;
    arm_wake_poll();
  }
  // Saves the look-up of the descriptor in each enter. It is a registration of the thread, and only
  // an optimisation: a kernel that refuses it is as good.
  io_uring_register_ring_fd(&ring_);
  attached_ = true;
  return {};
}

void Reactor::detach() {
  // On this thread: from another one it would take away that thread's registration of another ring.
  io_uring_unregister_ring_fd(&ring_);
  attached_ = false;
}

void Reactor::run() {
  SARSEN_ASSERT(attach().has_value(), "attach() succeeded before run()");
  while (!finished()) turn();
  stop_.store(false);
  detach();
}

bool Reactor::finished() const {
  return stop_.load() && outstanding_ == 0 && ready_.empty();
}

namespace {

Task<void> run_and_stop(Reactor* reactor, Task<void> main) {
  co_await std::move(main);
  reactor->stop();
}

}  // namespace

void Reactor::run_task(Task<void> main) {
  SARSEN_ASSERT(attach().has_value(), "attach() succeeded before run()");
  Scope scope(*this);
  scope.spawn(run_and_stop(this, std::move(main)));
  run();
}

void Reactor::stop() {
  stop_.store(true);
  notify();
}

void Reactor::notify() {
  // Dekker's handshake with wait(): the caller made its work visible, then looks here; wait() says
  // that it sleeps, then looks for work. One of the two sees the other.
  if (!sleeping_.load() || !sleeping_.exchange(false)) return;
  const int errno_before = errno;  // of the code that a signal handler interrupted
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_descriptor_, &one, sizeof(one));
  errno = errno_before;
}

void Reactor::arm_wake_poll() {
  // Multishot and edge-triggered: each write to the descriptor gives a completion, and its counter
  // never has to be read (2^64 wake-ups do not happen).
  io_uring_sqe& entry = next_entry();
  io_uring_prep_poll_multishot(&entry, wake_descriptor_, POLLIN);
  io_uring_sqe_set_data(&entry, static_cast<RingCompletion*>(&wake_poll_));
}

void Reactor::WakePoll::complete(std::int32_t, std::uint32_t flags) {
  if ((flags & IORING_CQE_F_MORE) == 0) reactor.arm_wake_poll();
}

// ---------------------------------------------------------------------------------------- time

BootTime Reactor::now() const {
  return BootTime(read_clock(CLOCK_BOOTTIME));
}
std::int64_t Reactor::wall_time_ns() const {
  return read_clock(CLOCK_REALTIME);
}

void Reactor::withdraw(SleepOperation& operation, bool resume) {
  timers_.remove(operation);
  if (resume) schedule(operation.finish());
}

void Reactor::expire_timers(BootTime now) {
  for (unsigned i = 0; i < kTimersPerTurn; ++i) {
    SleepOperation* const due = timers_.pop_due(now);
    if (due == nullptr) return;
    resume(due->finish());
  }
}

// ------------------------------------------------------------------------------------ the loop

void Reactor::turn() {
  enter();
  const BootTime begin = now();
  ++counters_.turns;
  reap_completions();
  drain_sources();
  expire_timers(begin);
  run_ready();
  note_turn_length(now() - begin);
}

void Reactor::note_turn_length(Duration length) {
  if (length < options_.stall_threshold) return;
  ++counters_.stalls;
  counters_.stall_longest = std::max(counters_.stall_longest, length);
  options_.on_stall(length);
}

void Reactor::enter() {
  if (work_is_pending()) {
    enter_without_waiting();
  } else if (options_.spin_window <= Duration(0) || !spin()) {
    wait();
  }
}

bool Reactor::work_is_pending() {
  if (!ready_.empty() || io_uring_cq_ready(&ring_) > 0 || finished()) return true;
  if (!timers_.empty() && timers_.deadline() <= now()) return true;
  for (WorkSource* source = first_source(); source != nullptr; source = sources_.next(*source)) {
    if (source->pending()) return true;
  }
  return false;
}

bool Reactor::kernel_has_completions() const {
  return (IO_URING_READ_ONCE(*ring_.sq.kflags) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0;
}

void Reactor::enter_without_waiting() {
  const unsigned entries = io_uring_sq_ready(&ring_);
  if (entries == 0 && !kernel_has_completions()) return;
  ++counters_.system_calls;
  counters_.submissions += entries;
  io_uring_submit_and_get_events(&ring_);
}

bool Reactor::spin() {
  enter_without_waiting();
  ++counters_.spins;
  const BootTime end = now() + options_.spin_window;
  do {
    if (work_is_pending()) return true;
    if (kernel_has_completions()) {
      enter_without_waiting();
      return true;
    }
    relax();
  } while (now() < end);
  return false;
}

void Reactor::wait() {
  sleeping_.store(true);
  if (work_is_pending()) {
    sleeping_.store(false);
    enter_without_waiting();
    return;
  }
  __kernel_timespec limit{};
  __kernel_timespec* limit_used = nullptr;
  if (!timers_.empty()) {
    const std::int64_t left = std::max<std::int64_t>((timers_.deadline() - now()).value, 0);
    limit.tv_sec = left / kNanosecondsPerSecond;
    limit.tv_nsec = left % kNanosecondsPerSecond;
    limit_used = &limit;
  }
  ++counters_.system_calls;
  ++counters_.waits;
  counters_.submissions += io_uring_sq_ready(&ring_);
  io_uring_cqe* first = nullptr;
  const int result = io_uring_submit_and_wait_timeout(&ring_, &first, 1, limit_used, nullptr);
  sleeping_.store(false);
  // A timeout, a signal, or a shortage that the next turn meets again.
  SARSEN_ASSERT(
      result >= 0 || result == -ETIME || result == -EINTR || result == -EAGAIN || result == -EBUSY,
      "io_uring_enter waits");
}

void Reactor::reap_completions() {
  struct Completed {
    RingCompletion* receiver;
    std::int32_t result;
    std::uint32_t flags;
  };
  // Copied out first: a resumed coroutine may submit, and a full submission queue enters the
  // kernel.
  std::array<Completed, kCompletionsPerTurn> batch;
  unsigned count = 0;
  unsigned head = 0;
  io_uring_cqe* entry = nullptr;
  io_uring_for_each_cqe(&ring_, head, entry) {
    if (count == batch.size()) break;
    batch[count++] = {static_cast<RingCompletion*>(io_uring_cqe_get_data(entry)), entry->res,
                      entry->flags};
  }
  io_uring_cq_advance(&ring_, count);
  counters_.completions += count;
  for (unsigned i = 0; i < count; ++i) {
    RingCompletion* const receiver = batch[i].receiver;
    if (receiver == nullptr) continue;
    if (receiver != &wake_poll_ && (batch[i].flags & IORING_CQE_F_MORE) == 0) --outstanding_;
    receiver->complete(batch[i].result, batch[i].flags);
  }
}

void Reactor::drain_sources() {
  for (WorkSource* source = first_source(); source != nullptr; source = sources_.next(*source)) {
    if (source->pending()) source->drain();
  }
}

void Reactor::run_ready() {
  // Only what is ready now: a coroutine that yields in a loop must not keep I/O waiting.
  running_.swap(ready_);
  for (const auto handle : running_) resume(handle);
  running_.clear();
}

// ----------------------------------------------------------------------------------- the ring

io_uring_sqe& Reactor::next_entry() {
  reserve(1);
  return *io_uring_get_sqe(&ring_);
}

void Reactor::reserve(unsigned entries) {
  while (io_uring_sq_space_left(&ring_) < entries) {
    const unsigned waiting = io_uring_sq_ready(&ring_);
    ++counters_.system_calls;
    const int submitted = io_uring_submit(&ring_);
    if (submitted > 0) {
      counters_.submissions += waiting;
      continue;
    }
    // Short of memory for requests, or too many completions not taken yet: let some end.
    SARSEN_ASSERT(
        submitted == 0 || submitted == -EAGAIN || submitted == -EBUSY || submitted == -EINTR,
        "io_uring takes well-formed submissions");
    io_uring_get_events(&ring_);
  }
}

int Reactor::register_file(int descriptor) {
  if (free_file_slots_.empty()) return -1;
  const int slot = free_file_slots_.back();
  if (io_uring_register_files_update(&ring_, static_cast<unsigned>(slot), &descriptor, 1) != 1) {
    return -1;
  }
  free_file_slots_.pop_back();
  return slot;
}

void Reactor::unregister_file(int slot) {
  if (slot < 0) return;
  int nothing = -1;
  const int updated =
      io_uring_register_files_update(&ring_, static_cast<unsigned>(slot), &nothing, 1);
  SARSEN_ASSERT(updated == 1, "files are unregistered on the shard that registered them");
  free_file_slots_.push_back(slot);
}

int Reactor::register_buffers(std::span<std::byte> memory) {
  SARSEN_ASSERT(fixed_memory_.empty(), "a reactor has one region of fixed buffers");
  std::vector<iovec> parts;
  for (std::uint64_t at = 0; at < memory.size(); at += kFixedBufferBytesMax) {
    parts.push_back({memory.data() + at, std::min(kFixedBufferBytesMax, memory.size() - at)});
  }
  const int error =
      -io_uring_register_buffers(&ring_, parts.data(), static_cast<unsigned>(parts.size()));
  if (error == 0) fixed_memory_ = memory;
  return error;
}

int Reactor::fixed_buffer_index(const std::byte* data, std::uint64_t size) const {
  // Compared as numbers: `data` may belong to another object.
  const auto start = reinterpret_cast<std::uintptr_t>(fixed_memory_.data());
  const std::uint64_t at = reinterpret_cast<std::uintptr_t>(data) - start;
  if (at >= fixed_memory_.size() || size > fixed_memory_.size() - at || size == 0) return -1;
  if (at / kFixedBufferBytesMax != (at + size - 1) / kFixedBufferBytesMax) return -1;
  return static_cast<int>(at / kFixedBufferBytesMax);
}

}  // namespace sarsen
