// What the runtime costs: a task, a turn, a submission, a call to another shard, a blocking job,
// and a durable 8 KiB write at depth 1 through the reactor beside a plain pwritev2 on the same
// file.
//
//   runtime_bench [--benchmark_filter=durable] [DIRECTORY]
//
// DIRECTORY (default: the working one) holds the scratch file, which is removed at the end.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "dataplane/base/rng.h"
#include "dataplane/runtime/scope.h"
#include "dataplane/runtime/uring/buffer_arena.h"
#include "dataplane/runtime/uring/disk_file.h"
#include "dataplane/runtime/uring/reactor.h"
#include "dataplane/runtime/uring/ring_operation.h"
#include "dataplane/runtime/uring/shard_runner.h"
#include "dataplane/runtime/uring/thread_pool.h"
#include "dataplane/runtime/uring/uring_network.h"
#include "dataplane/runtime/yield.h"

namespace sarsen {
namespace {

constexpr std::uint64_t kFileBytes = 64 * kMiB;
constexpr std::uint64_t kWriteBytes = 8 * kKiB;
std::string scratch_path;

std::unique_ptr<Reactor> make_reactor() {
  auto reactor = Reactor::create({});
  if (!reactor) {
    std::fprintf(stderr, "%s\n", reactor.error().message().c_str());
    std::exit(1);
  }
  return *std::move(reactor);
}

template <typename Loop>
void run_loop(benchmark::State& state, Loop loop) {
  const auto reactor = make_reactor();
  reactor->run_task(loop(&state, reactor.get()));
}

// ------------------------------------------------------------------------------- without a kernel

Task<int> give(int value) {
  co_return value;
}

Task<void> await_tasks(benchmark::State* state, Reactor*) {
  for (auto _ : *state) benchmark::DoNotOptimize(co_await give(1));
}
void task(benchmark::State& state) {
  run_loop(state, await_tasks);
}
BENCHMARK(task);

Task<void> yield(benchmark::State* state, Reactor* reactor) {
  for (auto _ : *state) co_await Yield(*reactor);
}
void turn_of_the_loop(benchmark::State& state) {
  run_loop(state, yield);
}
BENCHMARK(turn_of_the_loop);

Task<void> allocate(benchmark::State* state, Reactor* reactor) {
  auto arena = BufferArena::create({.bytes = 16 * kMiB, .registered = false}, *reactor);
  const auto held = (*arena)->allocate(static_cast<std::size_t>(state->range(0)));
  for (auto _ : *state) {
    benchmark::DoNotOptimize((*arena)->allocate(static_cast<std::size_t>(state->range(0))));
  }
  co_return;
}
void buffer(benchmark::State& state) {
  run_loop(state, allocate);
}
BENCHMARK(buffer)->Arg(4 * kKiB)->Arg(36 * kKiB)->Arg(kMiB);

// ---------------------------------------------------------------------------------- one ring

Task<void> no_operations(benchmark::State* state, Reactor* reactor) {
  for (auto _ : *state) {
    co_await RingOperation(*reactor, [](io_uring_sqe& entry) { io_uring_prep_nop(&entry); });
  }
}
void submission(benchmark::State& state) {
  run_loop(state, no_operations);
}
BENCHMARK(submission);

Task<void> echo(Connection* connection) {
  std::byte data[64];
  for (;;) {
    const auto got = co_await connection->receive(data);
    if (!got || *got == 0) co_return;
    const std::span<const std::byte> pieces[] = {{data, *got}};
    if (!co_await connection->send(pieces)) co_return;
  }
}

Task<void> socket_round_trips(benchmark::State* state, Reactor* reactor) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) co_return;
  const auto near = adopt_connection(*reactor, ends[0]);
  const auto far = adopt_connection(*reactor, ends[1]);
  Scope scope(*reactor);
  scope.spawn(echo(far.get()));
  std::byte data[64]{};
  for (auto _ : *state) {
    const std::span<const std::byte> pieces[] = {data};
    benchmark::DoNotOptimize(co_await near->send(pieces));
    benchmark::DoNotOptimize(co_await near->receive(data));
  }
  near->close();
  co_await scope.join();
}
void socket_round_trip_on_one_shard(benchmark::State& state) {
  run_loop(state, socket_round_trips);
}
BENCHMARK(socket_round_trip_on_one_shard)->UseRealTime();

// ------------------------------------------------------------------------------ between threads

// Goes to shard 1 and comes back.
class RoundTrip final : public ShardMessage {
 public:
  RoundTrip(Env& home, CrossShard& away) : home_(home), away_(away) {}
  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> waiter) {
    waiter_ = waiter;
    if (!home_.cross_shard.post(ShardId(1), *this)) std::abort();
  }
  void await_resume() const {}
  void run() override {
    if (std::exchange(answered_, true)) {
      home_.executor.schedule(waiter_);
    } else if (!away_.post(ShardId(0), *this)) {
      std::abort();
    }
  }

 private:
  Env& home_;
  CrossShard& away_;
  bool answered_ = false;
  std::coroutine_handle<> waiter_;
};

std::atomic<CrossShard*> other_shard{nullptr};

Task<void> round_trips(ShardContext context, benchmark::State* state) {
  if (context.env.shard.value == 1) {
    other_shard.store(&context.env.cross_shard);
    co_return;
  }
  while (other_shard.load() == nullptr) co_await Yield(context.env.executor);
  for (auto _ : *state) co_await RoundTrip(context.env, *other_shard.load());
}

// The argument is the spin window in microseconds.
void cross_shard_round_trip(benchmark::State& state) {
  other_shard.store(nullptr);
  ShardRunnerOptions options;
  options.shard_count = 2;
  options.buffers.bytes = kMiB;
  options.reactor.spin_window = microseconds(state.range(0));
  auto runner = ShardRunner::start(
      options, [&](ShardContext context) { return round_trips(context, &state); });
  if (!runner) return state.SkipWithError(runner.error().message().c_str());
  (*runner)->join();
}
BENCHMARK(cross_shard_round_trip)->Arg(0)->Arg(50)->UseRealTime();

Task<void> blocking_jobs(ShardContext context, benchmark::State* state) {
  for (auto _ : *state) {
    benchmark::DoNotOptimize(co_await context.env.blocking.run([] { return 1; }));
  }
}
void blocking_job(benchmark::State& state) {
  ShardRunnerOptions options;
  options.buffers.bytes = kMiB;
  auto runner = ShardRunner::start(
      options, [&](ShardContext context) { return blocking_jobs(context, &state); });
  if (!runner) return state.SkipWithError(runner.error().message().c_str());
  (*runner)->join();
}
BENCHMARK(blocking_job)->UseRealTime();

Task<void> idle_until(ShardContext context, Duration duration) {
  co_await context.env.clock.sleep(duration);
}
// A second of two shards that have nothing to do.
void idle_second(benchmark::State& state) {
  ShardRunnerOptions options;
  options.shard_count = 2;
  options.buffers.bytes = kMiB;
  timespec begin{};
  timespec end{};
  for (auto _ : state) {
    auto runner = ShardRunner::start(
        options, [](ShardContext context) { return idle_until(context, seconds(1)); });
    if (!runner) return state.SkipWithError(runner.error().message().c_str());
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
    (*runner)->join();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
  }
  const double used = static_cast<double>(end.tv_sec - begin.tv_sec) +
                      static_cast<double>(end.tv_nsec - begin.tv_nsec) / 1e9;
  state.counters["percent_of_a_core"] = 100 * used;
}
BENCHMARK(idle_second)->Iterations(1)->UseRealTime();

// ------------------------------------------------------------------------------------ the disk

// In the file's blocks, on memory and a descriptor of its own.
class PlainWriter {
 public:
  PlainWriter() { std::memset(memory_, 2, kWriteBytes); }
  ~PlainWriter() {
    std::free(memory_);
    close(descriptor_);
  }
  PlainWriter(const PlainWriter&) = delete;
  PlainWriter& operator=(const PlainWriter&) = delete;
  bool write(std::uint64_t offset) const {
    const iovec vector{memory_, kWriteBytes};
    return pwritev2(descriptor_, &vector, 1, static_cast<off_t>(offset), RWF_DSYNC) ==
           static_cast<ssize_t>(kWriteBytes);
  }

 private:
  int descriptor_ = open(scratch_path.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);
  void* memory_ = std::aligned_alloc(kBlockBytes, kWriteBytes);
};

class Latencies {
 public:
  void add(Duration duration) { nanoseconds_.push_back(static_cast<double>(duration.value)); }
  // In microseconds.
  double percentile(double percent) {
    if (nanoseconds_.empty()) return 0;
    std::sort(nanoseconds_.begin(), nanoseconds_.end());
    const double at = percent / 100 * static_cast<double>(nanoseconds_.size() - 1);
    return nanoseconds_[static_cast<std::size_t>(at)] / 1000;
  }

 private:
  std::vector<double> nanoseconds_;
};

// The ways to write that are compared. A thread of its own for pwritev2 is what a file system may
// be better off with: it completes asynchronous O_DSYNC writes on a kworker.
enum Way : std::size_t { kReactor, kPlain, kThread, kWays };
constexpr const char* kWayNames[kWays] = {"reactor", "pwritev2", "thread"};

void report(benchmark::State& state, std::array<Latencies, kWays>& latencies) {
  for (std::size_t way = 0; way < kWays; ++way) {
    for (const double percent : {1.0, 10.0, 50.0, 99.0}) {
      state.counters[std::string(kWayNames[way]) + "_us_p" +
                     std::to_string(static_cast<int>(percent))] =
          latencies[way].percentile(percent);
    }
  }
}

// In random order: they meet the same disk and the same noise, and none follows always the same
// other one. The low percentiles are what a quiet machine would show.
Task<void> durable_writes(benchmark::State* state, Reactor* reactor) {
  const auto arena = BufferArena::create({.bytes = kMiB}, *reactor);
  auto file = DiskFile::open(scratch_path, OpenMode::exclusive);
  if (!arena || !file) co_return state->SkipWithError("the scratch file cannot be opened");
  const auto disk = open_disk(*file, *reactor);
  const auto memory = (*arena)->allocate(kWriteBytes);
  std::memset(memory->data(), 1, kWriteBytes);
  const PlainWriter plain;
  ThreadPool threads(1, "writer");
  UringBlockingPool pool(threads, *reactor);
  std::array<Latencies, kWays> latencies;
  Rng rng(1);
  std::uint64_t writes = 0;
  for (auto _ : *state) {
    const std::uint64_t offset = writes++ * kWriteBytes % kFileBytes;
    const auto way = static_cast<Way>(rng.below(kWays));
    const BootTime begin = reactor->now();
    bool written = false;
    if (way == kReactor) {
      const auto outcome = co_await (*disk)->write_durable(ByteOffset(offset), memory->span());
      written = outcome.has_value();
    } else if (way == kPlain) {
      written = plain.write(offset);
    } else {
      written = co_await pool.run([&] { return plain.write(offset); });
    }
    latencies[way].add(reactor->now() - begin);
    if (!written) state->SkipWithError("a write failed");
  }
  report(*state, latencies);
}
void durable_write_8k(benchmark::State& state) {
  run_loop(state, durable_writes);
}
BENCHMARK(durable_write_8k)->UseRealTime();

// Written once, so that the writes under test change no metadata.
bool make_scratch_file() {
  const int descriptor = open(scratch_path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const std::string zeroes(kMiB, '\0');
  bool written = descriptor >= 0;
  for (std::uint64_t at = 0; written && at < kFileBytes; at += kMiB) {
    written = write(descriptor, zeroes.data(), kMiB) == static_cast<ssize_t>(kMiB);
  }
  written = written && fsync(descriptor) == 0;
  if (descriptor >= 0) close(descriptor);
  return written;
}

}  // namespace
}  // namespace sarsen

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  sarsen::scratch_path = std::string(argc > 1 ? argv[1] : ".") + "/runtime_bench.scratch";
  if (!sarsen::make_scratch_file()) {
    std::perror(sarsen::scratch_path.c_str());
    return 1;
  }
  benchmark::RunSpecifiedBenchmarks();
  unlink(sarsen::scratch_path.c_str());
  return 0;
}
