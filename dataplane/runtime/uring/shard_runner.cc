#include "dataplane/runtime/uring/shard_runner.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "dataplane/runtime/scope.h"
#include "dataplane/runtime/uring/cross_shard.h"
#include "dataplane/runtime/uring/os_random.h"
#include "dataplane/runtime/uring/signal_mask.h"
#include "dataplane/runtime/uring/system_check.h"
#include "dataplane/runtime/uring/thread_pool.h"

namespace sarsen {

void StopSignal::drain() {
  delivered_ = true;
  IntrusiveList<Waiter> waiters;
  waiters.splice_back(waiters_);
  while (!waiters.empty()) reactor_.resume(waiters.pop_front().handle_);
}

// Where shards meet before any main runs: all could be set up, or none goes on.
class ShardRunner::StartGate {
 public:
  explicit StartGate(std::uint32_t count) : missing_(count) {}

  // On a shard: reports, waits for the others, tells whether to go on.
  bool arrive(Result<void> outcome) {
    std::unique_lock lock(mutex_);
    if (!outcome && !error_) error_ = std::move(outcome).error();
    if (--missing_ == 0) changed_.notify_all();
    changed_.wait(lock, [this] { return missing_ == 0; });
    return !error_;
  }
  Result<void> wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return missing_ == 0; });
    if (error_) return fail(*error_);
    return {};
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint32_t missing_;
  std::optional<Error> error_;
};

struct ShardRunner::Shared {
  Shared(const ShardRunnerOptions& options)
      : mailboxes(options.shard_count, options.mailbox_capacity),
        blocking_threads(options.blocking_threads, "blocking"),
        gate(options.shard_count) {}

  MailboxGrid mailboxes;
  ThreadPool blocking_threads;
  FaultPoints faults;
  StartGate gate;
};

// Members in the order in which they need each other.
struct ShardRunner::Shard {
  Shard(Shared& shared, ShardId number, const NetworkOptions& network_options,
        std::unique_ptr<Reactor> made_reactor, std::unique_ptr<BufferArena> made_buffers)
      : buffers(std::move(made_buffers)),
        reactor(std::move(made_reactor)),
        network(*reactor, network_options),
        cross_shard(shared.mailboxes, number, *reactor),
        blocking(shared.blocking_threads, *reactor),
        stop_signal(*reactor),
        env{number,   *reactor,    *reactor, random,       network,
            *buffers, cross_shard, blocking, shared.faults} {}

  std::unique_ptr<BufferArena> buffers;
  std::unique_ptr<Reactor> reactor;
  OsRandom random;
  UringNetwork network;
  UringCrossShard cross_shard;
  UringBlockingPool blocking;
  StopSignal stop_signal;
  Env env;
  std::thread thread;
};

ShardRunner::ShardRunner(ShardRunnerOptions options, Main main)
    : options_(std::move(options)), main_(std::move(main)) {}

Result<std::unique_ptr<ShardRunner>> ShardRunner::start(ShardRunnerOptions options, Main main) {
  if (options.shard_count == 0 ||
      (!options.cpus.empty() && options.cpus.size() != options.shard_count)) {
    return fail(make_error(RuntimeError::bad_argument,
                           std::to_string(options.shard_count) + " shards on " +
                               std::to_string(options.cpus.size()) +
                               " CPUs: at least one shard, and one CPU for each or none"));
  }
  SARSEN_TRY(check_io_uring());
  std::unique_ptr<ShardRunner> runner(new ShardRunner(std::move(options), std::move(main)));
  SARSEN_TRY(runner->make_shards());
  SARSEN_TRY(runner->start_threads());
  return runner;
}

Result<void> ShardRunner::make_shards() {
  shared_ = std::make_unique<Shared>(options_);
  for (std::uint32_t number = 0; number < options_.shard_count; ++number) {
    ReactorOptions options = options_.reactor;
    options.thread.name += "/" + std::to_string(number);
    if (!options_.cpus.empty()) options.thread.cpu = options_.cpus[number];
    auto reactor = Reactor::create(std::move(options));
    if (!reactor) return fail(std::move(reactor).error());
    auto buffers = BufferArena::create(options_.buffers, **reactor);
    if (!buffers) return fail(std::move(buffers).error());
    shards_.push_back(std::make_unique<Shard>(*shared_, ShardId(number), options_.network,
                                              *std::move(reactor), *std::move(buffers)));
  }
  return {};
}

Result<void> ShardRunner::start_threads() {
  const BlockedSignals blocked;
  mains_running_.store(options_.shard_count);
  for (auto& shard : shards_) {
    shard->thread = std::thread([this, target = shard.get()] { run_shard(*target); });
  }
  return shared_->gate.wait();
}

void ShardRunner::run_shard(Shard& shard) {
  if (!shared_->gate.arrive(shard.reactor->attach())) return;
  Scope scope(*shard.reactor);
  scope.spawn(run_main(&shard));
  shard.reactor->run();
}

Task<void> ShardRunner::run_main(Shard* shard) {
  co_await main_(ShardContext{shard->env, *shard->reactor, shard->stop_signal});
  main_ended();
}

void ShardRunner::main_ended() {
  if (mains_running_.fetch_sub(1) > 1) return;
  for (auto& shard : shards_) shard->reactor->stop();
}

void ShardRunner::request_stop() {
  for (auto& shard : shards_) shard->stop_signal.request();
}

void ShardRunner::join() {
  for (auto& shard : shards_) {
    if (shard->thread.joinable()) shard->thread.join();
  }
}

ShardRunner::~ShardRunner() {
  join();
}

const ReactorCounters& ShardRunner::counters(ShardId shard) const {
  return shards_[shard.value]->reactor->counters();
}

}  // namespace sarsen
