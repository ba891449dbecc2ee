// A tiny deterministic environment for unit tests: nothing happens until the test asks for it.
//
//   ManualEnv world;
//   Scope scope(world.executor);
//   scope.spawn(work(world.env()));
//   world.run();                          // until nothing is ready
//   world.advance(milliseconds(10));      // timers fire in order of their deadlines
//
// The order of ready coroutines is that of their scheduling, or drawn from a seed, or from a list
// of choices; for_each_order() runs a small scenario once for every possible order, and
// for_each_crash() abandons it after every step.
//
// There is no disk and no network here: tests of those use the simulator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "dataplane/base/rng.h"
#include "dataplane/runtime/env.h"
#include "dataplane/runtime/scope.h"

namespace sarsen {

// Picks one of `count` > 1 ready coroutines.
using Choose = std::function<std::size_t(std::size_t count)>;

class ManualExecutor final : public Executor {
 public:
  explicit ManualExecutor(Choose choose = {}) : choose_(std::move(choose)) {}
  ~ManualExecutor() override = default;

  void schedule(std::coroutine_handle<> handle) override {
    if (abandoned()) std::abort();  // the contract of Executor::schedule()
    ready_.push_back(handle);
  }
  bool idle() const { return ready_.empty(); }
  std::size_t ready() const { return ready_.size(); }
  void set_choose(Choose choose) { choose_ = std::move(choose); }

  // Runs one ready coroutine; false when there is none.
  bool step() {
    if (ready_.empty()) return false;
    const std::size_t index = ready_.size() > 1 && choose_ ? choose_(ready_.size()) : 0;
    const auto handle = ready_[index];
    ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(index));
    ++steps_;
    handle.resume();
    return true;
  }
  // Runs until nothing is ready. A scenario that takes more than `steps_max` steps goes round in
  // circles: the test fails by aborting.
  std::size_t run(std::size_t steps_max = 1'000'000) {
    std::size_t steps = 0;
    while (step()) {
      if (++steps > steps_max) std::abort();
    }
    return steps;
  }
  std::size_t steps() const { return steps_; }

  // A simulated crash: what is ready never runs, every frame of every scope is destroyed.
  void abandon() {
    ready_.clear();
    abandon_scopes();
  }

 private:
  std::deque<std::coroutine_handle<>> ready_;
  Choose choose_;
  std::size_t steps_ = 0;
};

// Time stands still but for advance(). Deadlines that are equal fire in the order of their sleeps.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(ManualExecutor& executor) : executor_(executor) {}

  BootTime now() const override { return now_; }
  std::int64_t wall_time_ns() const override {
    return 1'700'000'000'000'000'000 + now_.value;  // 2023-11-14
  }
  std::size_t sleeping() const { return count_; }
  std::optional<BootTime> next_deadline() {
    SleepOperation* first = earliest();
    if (first == nullptr) return std::nullopt;
    return first->deadline();
  }
  // Moves to `time`, which is not in the past, and wakes what is due.
  void set(BootTime time) {
    now_ = time;
    while (SleepOperation* first = earliest()) {
      if (first->deadline() > now_) break;
      first->unlink();
      --count_;
      executor_.schedule(first->finish());
    }
  }

 private:
  void submit(SleepOperation& operation) override {
    sleeping_.push_back(operation);
    ++count_;
  }
  void withdraw(SleepOperation& operation, bool resume) override {
    operation.unlink();
    --count_;
    if (resume && !executor_.abandoned()) executor_.schedule(operation.finish());
  }
  SleepOperation* earliest() {
    SleepOperation* first = nullptr;
    if (sleeping_.empty()) return first;
    for (SleepOperation* each = &sleeping_.front(); each != nullptr; each = sleeping_.next(*each)) {
      if (first == nullptr || each->deadline() < first->deadline()) first = each;
    }
    return first;
  }

  ManualExecutor& executor_;
  BootTime now_{1'000'000'000};
  std::size_t count_ = 0;
  IntrusiveList<SleepOperation> sleeping_;
};

class ManualRandom final : public Random {
 public:
  explicit ManualRandom(std::uint64_t seed) : rng_(seed) {}
  std::uint64_t next() override { return rng_.next(); }
  void fill(std::span<std::byte> into) override {
    for (std::byte& byte : into) byte = static_cast<std::byte>(rng_.next());
  }

 private:
  Rng rng_;
};

// Heap memory up to a bound; aborts when a buffer outlives it.
class ManualBufferPool final : public BufferPool {
 public:
  explicit ManualBufferPool(std::size_t bytes_max) : bytes_max_(bytes_max) {}
  ~ManualBufferPool() override {
    if (bytes_used_ != 0) std::abort();
  }
  Result<Buffer> allocate(std::size_t bytes) override {
    const std::size_t size = round_up(std::max<std::size_t>(bytes, 1), kBlockBytes);
    if (bytes_used_ + size > bytes_max_) return fail(make_error(RuntimeError::out_of_memory));
    bytes_used_ += size;
    return Buffer(*this, static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, size)), size);
  }
  std::size_t bytes_used() const { return bytes_used_; }

 private:
  void release(std::byte* data, std::size_t size) override {
    bytes_used_ -= size;
    std::free(data);
  }
  const std::size_t bytes_max_;
  std::size_t bytes_used_ = 0;
};

// Nobody listens.
class NoNetwork final : public Network {
 public:
  Result<std::unique_ptr<Listener>> listen(Address address) override {
    return fail(make_error(RuntimeError::address_invalid, std::move(address)));
  }
  Task<Result<std::unique_ptr<Connection>>> connect(Address address) override {
    co_return fail(make_error(RuntimeError::connection_refused, std::move(address)));
  }
};

// Jobs run one by one, in order, when the test calls run_one() or ManualWorld::run() does.
class ManualBlockingPool final : public BlockingPool {
 public:
  explicit ManualBlockingPool(ManualExecutor& executor) : executor_(executor) {}
  bool run_one() {
    if (jobs_.empty()) return false;
    BlockingJob& job = jobs_.pop_front();
    job.run();
    executor_.schedule(job.waiter);
    return true;
  }

 private:
  void submit(BlockingJob& job) override { jobs_.push_back(job); }
  void withdraw(BlockingJob& job) override { job.unlink(); }
  ManualExecutor& executor_;
  IntrusiveList<BlockingJob> jobs_;
};

class ManualWorld;

// Mailboxes between the shards of one ManualWorld; a message waits until deliver_one().
class ManualCrossShard final : public CrossShard {
 public:
  ManualCrossShard(ManualWorld& world, ShardId source) : world_(world), source_(source) {}
  std::uint32_t shard_count() const override;
  Result<void> post(ShardId target, ShardMessage& message) override;

 private:
  ManualWorld& world_;
  ShardId source_;
};

// Some shards in one thread, with time and random numbers of their own.
class ManualWorld {
 public:
  struct Shard {
    Shard(ManualWorld& world, ShardId id, std::size_t buffer_bytes_max)
        : clock(executor),
          random(id.value + 1),
          buffers(buffer_bytes_max),
          cross_shard(world, id),
          blocking(executor),
          env{id, executor, clock, random, network, buffers, cross_shard, blocking, faults} {}
    ManualExecutor executor;
    ManualClock clock;
    ManualRandom random;
    NoNetwork network;
    ManualBufferPool buffers;
    ManualCrossShard cross_shard;
    ManualBlockingPool blocking;
    FaultPoints faults;
    Env env;
    std::deque<std::unique_ptr<IntrusiveList<ShardMessage>>> inbox_of;  // by source
  };

  explicit ManualWorld(std::uint32_t shards, std::size_t mailbox_max = 4,
                       std::size_t buffer_bytes_max = 64 * kMiB)
      : mailbox_max_(mailbox_max) {
    for (std::uint32_t id = 0; id < shards; ++id) {
      shards_.push_back(std::make_unique<Shard>(*this, ShardId(id), buffer_bytes_max));
      for (std::uint32_t source = 0; source < shards; ++source) {
        shards_.back()->inbox_of.push_back(std::make_unique<IntrusiveList<ShardMessage>>());
      }
    }
  }

  Shard& shard(std::uint32_t id) { return *shards_[id]; }
  std::uint32_t shard_count() const { return static_cast<std::uint32_t>(shards_.size()); }

  // Runs the oldest message from `source` on `target`; false when there is none.
  bool deliver_one(std::uint32_t source, std::uint32_t target) {
    Shard& to = shard(target);
    if (to.inbox_of[source]->empty()) return false;
    to.inbox_of[source]->pop_front().run();
    return true;
  }
  // One round over all shards: coroutines, jobs, messages. False when nothing was to be done.
  bool turn() {
    bool worked = false;
    for (std::uint32_t target = 0; target < shard_count(); ++target) {
      worked |= shard(target).executor.run() > 0;
      worked |= shard(target).blocking.run_one();
      for (std::uint32_t source = 0; source < shard_count(); ++source) {
        worked |= deliver_one(source, target);
      }
    }
    return worked;
  }
  void run() {
    while (turn()) {
    }
  }
  // Moves all clocks on together, from deadline to deadline, running what becomes ready.
  void advance(Duration duration) {
    const BootTime end = shard(0).clock.now() + duration;
    run();
    while (const auto next = next_deadline(end)) {
      for (const auto& each : shards_) each->clock.set(*next);
      run();
    }
    for (const auto& each : shards_) each->clock.set(end);
    run();
  }
  // Runs and lets time pass until nothing sleeps, for at most `limit`.
  void run_to_end(Duration limit = seconds(3600)) {
    run();
    const BootTime end = shard(0).clock.now() + limit;
    while (const auto next = next_deadline(end)) {
      for (const auto& each : shards_) each->clock.set(*next);
      run();
    }
  }

 private:
  friend class ManualCrossShard;
  std::optional<BootTime> next_deadline(BootTime limit) {
    std::optional<BootTime> next;
    for (const auto& each : shards_) {
      const auto deadline = each->clock.next_deadline();
      if (deadline && *deadline <= limit && (!next || *deadline < *next)) next = deadline;
    }
    return next;
  }
  const std::size_t mailbox_max_;
  std::vector<std::unique_ptr<Shard>> shards_;
};

inline std::uint32_t ManualCrossShard::shard_count() const {
  return world_.shard_count();
}

inline Result<void> ManualCrossShard::post(ShardId target, ShardMessage& message) {
  auto& inbox = *world_.shard(target.value).inbox_of[source_.value];
  // Counted by walking, because a message leaves the list by itself when its frame dies in a crash.
  std::size_t waiting = 0;
  if (!inbox.empty()) {
    for (ShardMessage* each = &inbox.front(); each != nullptr; each = inbox.next(*each)) ++waiting;
  }
  if (waiting >= world_.mailbox_max_) return fail(make_error(RuntimeError::overloaded));
  inbox.push_back(message);
  return {};
}

// The world of one shard, which is what most tests need.
class ManualEnv : public ManualWorld {
 public:
  ManualEnv() : ManualWorld(1), executor(shard(0).executor), clock(shard(0).clock) {}
  Env& env() { return shard(0).env; }
  ManualExecutor& executor;
  ManualClock& clock;
};

// Runs `scenario` once for every order in which ready coroutines can be picked, depth first, and
// gives the number of orders. `scenario` must be deterministic but for the choices it asks for.
inline std::size_t for_each_order(const std::function<void(Choose)>& scenario) {
  struct Choice {
    std::size_t taken;
    std::size_t count;
  };
  std::vector<Choice> path;
  for (std::size_t orders = 1;; ++orders) {
    std::size_t depth = 0;
    scenario([&](std::size_t count) {
      if (depth == path.size()) path.push_back({0, count});
      if (path[depth].count != count) std::abort();  // not deterministic
      return path[depth++].taken;
    });
    while (!path.empty() && path.back().taken + 1 == path.back().count) path.pop_back();
    if (path.empty()) return orders;
    ++path.back().taken;
  }
}

// Simulates a crash of a small scenario after every number of steps, with the frames destroyed in
// every order. `start` spawns into the given scopes, one coroutine or more in each; what coroutines
// share lives in their frames. Gives the number of crashes. To be run under AddressSanitizer.
inline std::size_t for_each_crash(
    std::size_t scope_count,
    const std::function<void(ManualEnv&, const std::vector<Scope*>&)>& start) {
  std::vector<std::size_t> order(scope_count);
  for (std::size_t i = 0; i < scope_count; ++i) order[i] = i;
  std::size_t crashes = 0;
  do {
    bool ended = false;
    for (std::size_t steps = 0; !ended; ++steps) {
      ManualEnv world;
      std::vector<std::unique_ptr<Scope>> owned(scope_count);
      std::vector<Scope*> scopes(scope_count);
      for (const std::size_t index : order) {  // the newest dies first
        owned[index] = std::make_unique<Scope>(world.executor);
        scopes[index] = owned[index].get();
      }
      start(world, scopes);
      for (std::size_t i = 0; i < steps && !ended; ++i) ended = !world.executor.step();
      world.executor.abandon();
      ++crashes;
    }
  } while (std::next_permutation(order.begin(), order.end()));
  return crashes;
}

}  // namespace sarsen
