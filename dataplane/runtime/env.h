// The one seam between Sarsen and the world: Clock, Disk, Network, Random, and what a shard needs
// beside them. Product code touches time, disk, network and chance only through these, so that the
// same code runs on io_uring (runtime/uring) and in the deterministic simulator (tests/sim).
//
// Shard    Every object here belongs to one shard and is used from it alone, except BlockingDisk
//          (used from threads of the BlockingPool) and the target side of CrossShard.
// Waiting  Operations are awaitables that live in the caller's frame: no allocation for an I/O. The
//          buffers they name must stay valid until they complete. They complete exactly once,
//          through the executor's run queue or inline from the reactor's completion loop; both are
//          legal.
#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "dataplane/base/intrusive_list.h"
#include "dataplane/base/result.h"
#include "dataplane/base/units.h"
#include "dataplane/runtime/error.h"
#include "dataplane/runtime/executor.h"
#include "dataplane/runtime/task.h"

namespace sarsen {

// ------------------------------------------------------------------------------------------ time

// Nanoseconds of CLOCK_BOOTTIME: does not stop while the machine is suspended (rule R4).
using BootTime = Strong<struct BootTimeTag, std::int64_t>;
// A span of time in nanoseconds.
using Duration = Strong<struct DurationTag, std::int64_t>;

constexpr Duration nanoseconds(std::int64_t n) {
  return Duration(n);
}
constexpr Duration microseconds(std::int64_t n) {
  return Duration(n * 1'000);
}
constexpr Duration milliseconds(std::int64_t n) {
  return Duration(n * 1'000'000);
}
constexpr Duration seconds(std::int64_t n) {
  return Duration(n * 1'000'000'000);
}
// A time that does not come.
inline constexpr BootTime kNever{std::numeric_limits<std::int64_t>::max()};
// A sum that does not fit is kNever. `d` is not negative.
constexpr BootTime operator+(BootTime t, Duration d) {
  return t.value > kNever.value - d.value ? kNever : BootTime(t.value + d.value);
}
constexpr Duration operator-(BootTime a, BootTime b) {
  return Duration(a.value - b.value);
}
constexpr Duration operator*(Duration d, std::int64_t n) {
  return Duration(d.value * n);
}

class Clock;

// What runs when a Timer (timer.h) fires: in the clock's loop, so it must not resume a coroutine.
class TimerHook {
 public:
  virtual void on_timer() = 0;

 protected:
  ~TimerHook() = default;
};

// co_await gives true when the time came, false when cancel() came first.
class SleepOperation : public ListNode {
 public:
  SleepOperation(Clock& clock, BootTime deadline) : clock_(clock), deadline_(deadline) {}
  SleepOperation(const SleepOperation&) = delete;
  SleepOperation& operator=(const SleepOperation&) = delete;
  ~SleepOperation();

  bool await_ready() const;
  void await_suspend(std::coroutine_handle<> waiter);
  bool await_resume() const { return !cancelled_; }
  // Ends the wait early, if one is pending; the waiter resumes through the run queue.
  void cancel();

  // For implementations of Clock.
  BootTime deadline() const { return deadline_; }
  // Gives what to resume. The last thing that an implementation does with a submitted operation:
  // its owner may destroy it from then on, or submit it again.
  std::coroutine_handle<> finish() {
    pending_ = false;
    if (hook_ == nullptr) return waiter_;
    hook_->on_timer();
    return std::noop_coroutine();
  }
  std::uint64_t scratch = 0;

 protected:
  // For Timer: calls `hook` where others resume a waiter.
  SleepOperation(Clock& clock, TimerHook& hook) : clock_(clock), deadline_(kNever), hook_(&hook) {}
  bool pending() const { return pending_; }
  void submit(BootTime deadline);
  void withdraw();

 private:
  Clock& clock_;
  BootTime deadline_;
  std::coroutine_handle<> waiter_;
  TimerHook* hook_ = nullptr;
  bool pending_ = false;
  bool cancelled_ = false;
};

class Clock {
 public:
  virtual ~Clock() = default;
  virtual BootTime now() const = 0;
  // For logs and for names people read; never for decisions. Nanoseconds since 1970, UTC.
  virtual std::int64_t wall_time_ns() const = 0;

  SleepOperation sleep(Duration duration) { return SleepOperation(*this, now() + duration); }
  SleepOperation sleep_until(BootTime deadline) { return SleepOperation(*this, deadline); }

 protected:
  friend class SleepOperation;
  // Resumes operation.finish() once now() >= operation.deadline().
  virtual void submit(SleepOperation& operation) = 0;
  // Takes back an operation that has not finished; when `resume`, its waiter is scheduled.
  virtual void withdraw(SleepOperation& operation, bool resume) = 0;
};

// ---------------------------------------------------------------------------------------- memory

class BufferPool;

// Block-aligned memory from a pool; given back when it dies. The pool outlives it.
class Buffer {
 public:
  Buffer() = default;
  Buffer(BufferPool& pool, std::byte* data, std::size_t size)
      : pool_(&pool), data_(data), size_(size) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer old(std::move(*this));
    swap(other);
    return *this;
  }
  ~Buffer();

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  explicit operator bool() const { return data_ != nullptr; }
  std::span<std::byte> span() const { return {data_, size_}; }
  std::span<std::byte> span(std::size_t offset, std::size_t length) const {
    return span().subspan(offset, length);
  }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }
  BufferPool* pool_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// Memory for I/O. In production one arena per shard, registered with its ring, so that a transfer
// to or from it pins no pages.
class BufferPool {
 public:
  virtual ~BufferPool() = default;
  // Contents are unspecified. `bytes` is rounded up to a multiple of kBlockBytes. Error:
  // out_of_memory, when the pool's bound is reached.
  virtual Result<Buffer> allocate(std::size_t bytes) = 0;

 protected:
  friend class Buffer;
  virtual void release(std::byte* data, std::size_t size) = 0;
};

inline Buffer::~Buffer() {
  if (data_ != nullptr) pool_->release(data_, size_);
}

// ------------------------------------------------------------------------------------------ disk

class Disk;

enum class DiskOperationKind : std::uint8_t {
  read,
  write,          // may sit in the device's volatile cache when it completes
  write_durable,  // on stable media when it completes (RWF_DSYNC / FUA)
  flush,          // every write that completed before its start is on stable media
  discard,        // contents become unspecified
};

// One I/O. co_await gives the outcome for the whole range: there are no short transfers. After a
// failed write, the range holds old data, new data, or a mix of sectors.
class DiskOperation : public ListNode {
 public:
  DiskOperation(Disk& disk, DiskOperationKind kind, ByteOffset offset, std::byte* data,
                std::uint64_t size)
      : disk_(disk), kind_(kind), offset_(offset), data_(data), size_(size) {}
  DiskOperation(const DiskOperation&) = delete;
  DiskOperation& operator=(const DiskOperation&) = delete;
  ~DiskOperation();

  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> waiter);
  Result<void> await_resume() {
    if (error_) return fail(*std::move(error_));
    return {};
  }

  // For implementations of Disk.
  DiskOperationKind kind() const { return kind_; }
  ByteOffset offset() const { return offset_; }
  std::byte* data() const { return data_; }
  std::uint64_t size() const { return size_; }
  // Records the outcome and returns the waiter, which the implementation resumes.
  std::coroutine_handle<> finish(std::optional<Error> error) {
    pending_ = false;
    error_ = std::move(error);
    return waiter_;
  }
  std::uint64_t scratch = 0;

 private:
  Disk& disk_;
  DiskOperationKind kind_;
  bool pending_ = false;
  ByteOffset offset_;
  std::byte* data_;
  std::uint64_t size_;
  std::coroutine_handle<> waiter_;
  std::optional<Error> error_;
};

struct DiskInfo {
  std::string name;              // for messages
  std::uint64_t size_bytes = 0;  // a multiple of kBlockBytes
  bool volatile_cache = true;    // a completed `write` may be lost by power failure
  bool rotational = false;
  bool can_discard = false;
};

// A raw device or file, direct I/O. Offsets, sizes and addresses are multiples of kBlockBytes.
// Operations in flight are not ordered with each other; two that overlap, one of them a write, are
// a bug of the caller.
class Disk {
 public:
  virtual ~Disk() = default;
  virtual const DiskInfo& info() const = 0;

  DiskOperation read(ByteOffset offset, std::span<std::byte> into) {
    return {*this, DiskOperationKind::read, offset, into.data(), into.size()};
  }
  DiskOperation write(ByteOffset offset, std::span<const std::byte> from) {
    return {*this, DiskOperationKind::write, offset, const_cast<std::byte*>(from.data()),
            from.size()};
  }
  // On stable media when it completes; on a device without a volatile cache a plain write.
  DiskOperation write_durable(ByteOffset offset, std::span<const std::byte> from) {
    return {*this, DiskOperationKind::write_durable, offset, const_cast<std::byte*>(from.data()),
            from.size()};
  }
  DiskOperation flush() { return {*this, DiskOperationKind::flush, ByteOffset(0), nullptr, 0}; }
  DiskOperation discard(ByteOffset offset, std::uint64_t size) {
    return {*this, DiskOperationKind::discard, offset, nullptr, size};
  }

 protected:
  friend class DiskOperation;
  virtual void submit(DiskOperation& operation) = 0;
  // The operation's frame is being destroyed in a simulated crash. Never called in production.
  virtual void withdraw(DiskOperation& operation) = 0;
};

// The same device for threads of the BlockingPool (RocksDB's files). Thread-safe.
class BlockingDisk {
 public:
  virtual ~BlockingDisk() = default;
  virtual const DiskInfo& info() const = 0;
  virtual Result<void> read(ByteOffset offset, std::span<std::byte> into) = 0;
  virtual Result<void> write(ByteOffset offset, std::span<const std::byte> from) = 0;
  virtual Result<void> flush() = 0;
};

// --------------------------------------------------------------------------------------- network

// "tcp:HOST:PORT" (HOST a literal address; port 0 lets the system choose) or "unix:PATH".
using Address = std::string;

// A reliable, ordered byte stream. One receive and one send may be in flight at a time.
class Connection {
 public:
  virtual ~Connection() = default;
  // At least one byte, or 0 when the peer ended its side.
  virtual Task<Result<std::size_t>> receive(std::span<std::byte> into) = 0;
  // All bytes of all pieces, in order; pieces stay valid until it completes.
  virtual Task<Result<void>> send(std::span<const std::span<const std::byte>> pieces) = 0;
  // Ends both directions: pending and later calls answer `connection_reset`. Idempotent.
  virtual void close() = 0;
  virtual Address peer() const = 0;
};

class Listener {
 public:
  virtual ~Listener() = default;
  virtual Task<Result<std::unique_ptr<Connection>>> accept() = 0;
  // A pending accept answers `stopped`. Idempotent.
  virtual void close() = 0;
  // With the port that the system chose.
  virtual Address address() const = 0;
};

class Network {
 public:
  virtual ~Network() = default;
  virtual Result<std::unique_ptr<Listener>> listen(Address address) = 0;
  virtual Task<Result<std::unique_ptr<Connection>>> connect(Address address) = 0;
};

// ---------------------------------------------------------------------------------------- chance

class Random {
 public:
  virtual ~Random() = default;
  virtual std::uint64_t next() = 0;
  // Fit for keys and identities in production (getrandom).
  virtual void fill(std::span<std::byte> into) = 0;
};

// ------------------------------------------------------------------- other shards, other threads

// A message that runs on another shard. It lives in the sender's frame until it was answered.
class ShardMessage : public ListNode {
 public:
  // On the target shard. Must not block.
  virtual void run() = 0;

 protected:
  ~ShardMessage() = default;
};

// Bounded mailboxes, one per ordered pair of shards.
class CrossShard {
 public:
  virtual ~CrossShard() = default;
  virtual std::uint32_t shard_count() const = 0;
  // Error: overloaded, when the mailbox to `target` is full. Order per (source, target) is kept.
  virtual Result<void> post(ShardId target, ShardMessage& message) = 0;
};

// A piece of work for a thread that may block.
class BlockingJob : public ListNode {
 public:
  virtual void run() = 0;          // on a pool thread
  std::coroutine_handle<> waiter;  // resumed on the submitting shard after run()

 protected:
  ~BlockingJob() = default;
};

// Threads for libraries that block. Jobs of one pool with one thread run in submission order.
class BlockingPool {
 public:
  virtual ~BlockingPool() = default;

  // Runs `work` on a pool thread and gives what it returns (not void).
  template <typename Work>
  Task<std::invoke_result_t<Work&>> run(Work work) {
    struct Job final : BlockingJob {
      BlockingPool& pool;
      Work& work;
      std::optional<std::invoke_result_t<Work&>> result;
      Job(BlockingPool& p, Work& w) : pool(p), work(w) {}
      ~Job() {
        if (waiter) pool.withdraw(*this);
      }
      void run() override { result.emplace(work()); }
      bool await_ready() const { return false; }
      void await_suspend(std::coroutine_handle<> handle) {
        waiter = handle;
        pool.submit(*this);
      }
      std::invoke_result_t<Work&> await_resume() {
        waiter = {};
        return std::move(*result);
      }
    };
    Job job(*this, work);
    co_return co_await job;
  }

 protected:
  virtual void submit(BlockingJob& job) = 0;
  // The job's frame is being destroyed in a simulated crash. Never called in production.
  virtual void withdraw(BlockingJob& job) = 0;
};

// ----------------------------------------------------------------------------------- test points

// Places where the simulator may interfere, and counters of rare paths. All answer false in
// production. Names are lower_case words joined by dots, "journal.group_short".
class FaultPoints {
 public:
  virtual ~FaultPoints() = default;
  // A fault that the code must survive (an allocation that fails, a queue that is full).
  virtual bool fires(std::string_view) { return false; }
  // A bug planted to prove that the judges bite; see tests/sim/planted_bugs.
  virtual bool planted(std::string_view) { return false; }
  // A rare path was taken.
  virtual void probe(std::string_view) {}
};

// ----------------------------------------------------------------------------------- all of them

// What one shard is given. Made by main() or by the simulator, handed down, outlives all users.
struct Env {
  ShardId shard;
  Executor& executor;
  Clock& clock;
  Random& random;
  Network& network;
  BufferPool& buffers;
  CrossShard& cross_shard;
  BlockingPool& blocking;
  FaultPoints& faults;
};

}  // namespace sarsen
