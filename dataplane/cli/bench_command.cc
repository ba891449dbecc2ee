#include "dataplane/cli/bench_command.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>

#include "dataplane/base/rng.h"
#include "dataplane/cli/image_commands.h"
#include "dataplane/cli/latency_histogram.h"
#include "dataplane/client/image_session.h"
#include "dataplane/membership/rpc/map_subscription.h"
#include "dataplane/membership/rpc/mon_client.h"
#include "dataplane/runtime/timeout.h"
#include "dataplane/runtime/uring/shard_runner.h"
#include "dataplane/runtime/when_all.h"

namespace sarsen {
namespace {

constexpr std::uint32_t kDefaultSeconds = 10;
constexpr double kMiBDouble = 1024.0 * 1024.0;

bool writes(BenchType type) {
  return type == BenchType::write || type == BenchType::randwrite;
}
bool random_order(BenchType type) {
  return type == BenchType::randread || type == BenchType::randwrite;
}
const char* name_of(BenchType type) {
  switch (type) {
    case BenchType::read: return "read";
    case BenchType::write: return "write";
    case BenchType::randread: return "randread";
    case BenchType::randwrite: return "randwrite";
  }
  return "?";
}

// One run, on its shard.
struct Bench {
  const BenchOptions& options;
  MapSubscription& subscription;
  const Attached& attached;
  HolderId holder;
  std::atomic<bool> ended{false};

  // Set by the run.
  LatencyHistogram latencies{};
  double seconds = 0;
  std::optional<Error> error{};
  bool holds_data = false;
};

struct Workers {
  Env& env;
  Bench& bench;
  ImageSession& session;
  Rng rng;
  std::vector<std::byte> data;  // what is written
  std::uint64_t slots = 0;      // of the image, of io_bytes each
  std::uint64_t started = 0;
  BootTime began;
  BootTime until = kNever;
  bool stopping = false;

  bool over() const {
    const BenchOptions& options = bench.options;
    return stopping || bench.error || env.clock.now() >= until ||
           (options.total_bytes > 0 && started * options.io_bytes >= options.total_bytes);
  }
};

Task<void> work(Workers* workers) {
  const BenchOptions& options = workers->bench.options;
  const bool write = writes(options.type);
  std::vector<std::byte> into(write ? 0 : options.io_bytes);
  while (!workers->over()) {
    const std::uint64_t number = workers->started++;
    const std::uint64_t slot =
        random_order(options.type) ? workers->rng.below(workers->slots) : number % workers->slots;
    const BootTime start = workers->env.clock.now();
    const std::uint64_t offset = slot * options.io_bytes;
    const auto result = write ? co_await workers->session.write(offset, workers->data)
                              : co_await workers->session.read(offset, into);
    if (!result) {
      workers->bench.error = result.error();
      co_return;
    }
    workers->bench.latencies.add(
        static_cast<std::uint64_t>((workers->env.clock.now() - start).value));
  }
}

// A line each second, to standard error.
Task<void> show_progress(Workers* workers, CancelToken token) {
  std::uint64_t before = 0;
  std::fputs("  SEC       OPS   OPS/SEC     MiB/SEC\n", stderr);
  for (int second = 1; co_await sleep_for(workers->env.clock, seconds(1), token); ++second) {
    const std::uint64_t now = workers->bench.latencies.count();
    const double bytes = static_cast<double>((now - before) * workers->bench.options.io_bytes);
    std::fputs(
        fmt::format("{:5} {:9} {:9} {:11.1f}\n", second, now, now - before, bytes / kMiBDouble)
            .c_str(),
        stderr);
    before = now;
  }
}

Task<void> stop_when_asked(ShardContext context, Workers* workers) {
  co_await context.stop_requested();
  workers->stopping = true;
}

// Whether anything of the image takes space.
Task<Result<bool>> holds_data(ImageSession* session) {
  std::uint64_t at = 0;
  while (at < session->size_bytes()) {
    const auto runs = co_await session->status(at, session->size_bytes() - at, 16);
    if (!runs) co_return fail(runs.error());
    for (const BlockStatus& run : *runs) {
      if (run.allocated) co_return true;
      at += run.length_bytes;
    }
  }
  co_return false;
}

Task<void> run_workers(ShardContext context, Bench* bench, ImageSession* session) {
  const BenchOptions& options = bench->options;
  Env& env = context.env;
  Workers workers{.env = env,
                  .bench = *bench,
                  .session = *session,
                  .rng = Rng(env.random.next()),
                  .data = std::vector<std::byte>(writes(options.type) ? options.io_bytes : 0),
                  .slots = session->size_bytes() / options.io_bytes,
                  .began = env.clock.now()};
  for (std::byte& byte : workers.data) byte = static_cast<std::byte>(workers.rng.next());
  const std::uint32_t limit =
      options.seconds == 0 && options.total_bytes == 0 ? kDefaultSeconds : options.seconds;
  if (limit > 0) workers.until = workers.began + seconds(limit);

  CancelSource ended(env.executor);
  Scope scope(env.executor);
  if (options.format == OutputFormat::text) scope.spawn(show_progress(&workers, ended.token()));
  scope.spawn(stop_when_asked(context, &workers));
  std::vector<Task<void>> tasks;
  for (std::uint32_t i = 0; i < options.io_threads; ++i) tasks.push_back(work(&workers));
  co_await when_all(env.executor, std::move(tasks));
  bench->seconds = static_cast<double>((env.clock.now() - workers.began).value) / 1e9;
  ended.cancel();
  bench->ended = true;  // main() asks the shard to stop
  co_await scope.join();
}

Task<void> shard_main(ShardContext context, Bench* bench) {
  const BenchOptions& options = bench->options;
  SubscribedMap map(bench->subscription, context.reactor);
  ImageSessionOptions session_options;
  session_options.image = bench->attached.image.id;
  session_options.holder = bench->holder;
  session_options.attach_epoch = bench->attached.attachment.epoch;
  session_options.session = wire::SessionId(1);
  session_options.role = wire::Role::tool;
  auto session = co_await ImageSession::open(context.env, map, session_options);
  if (!session) {
    bench->error = session.error();
    bench->ended = true;
    co_return;
  }
  if (writes(options.type) && options.confirm.empty()) {
    const auto holds = co_await holds_data(session->get());
    if (!holds) bench->error = holds.error();
    bench->holds_data = holds && *holds;
  }
  if (!bench->error && !bench->holds_data) {
    co_await run_workers(context, bench, session->get());
  }
  co_await (*session)->stop();
  bench->ended = true;
}

// Runs it on a shard, until it has ended or a signal came.
Result<void> run_on_shard(Bench& bench) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM}) sigaddset(&signals, signal);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ShardRunnerOptions options;
  options.buffers.registered = false;
  auto runner = ShardRunner::start(
      options, [&bench](ShardContext context) { return shard_main(context, &bench); });
  if (!runner) return fail(runner.error());
  while (!bench.ended) {
    const timespec wait{.tv_sec = 0, .tv_nsec = 50'000'000};
    if (::sigtimedwait(&signals, nullptr, &wait) > 0) break;
  }
  (*runner)->request_stop();
  (*runner)->join();
  return {};
}

Json report_of(const Bench& bench, const ImageName& name) {
  const BenchOptions& options = bench.options;
  const LatencyHistogram& latencies = bench.latencies;
  const auto us = [](std::uint64_t ns) { return static_cast<double>(ns / 100) / 10; };
  const auto rounded = [](double value) {
    return static_cast<double>(static_cast<std::int64_t>(value * 10 + 0.5)) / 10;
  };
  const double ops = bench.seconds > 0 ? static_cast<double>(latencies.count()) / bench.seconds : 0;
  return {{"image", name.pool + "/" + name.name},
          {"io_type", name_of(options.type)},
          {"io_bytes", options.io_bytes},
          {"io_threads", options.io_threads},
          {"seconds", rounded(bench.seconds)},
          {"operations", latencies.count()},
          {"bytes", latencies.count() * options.io_bytes},
          {"iops", rounded(ops)},
          {"mib_per_second", rounded(ops * static_cast<double>(options.io_bytes) / kMiBDouble)},
          {"latency_us",
           {{"mean", us(latencies.mean_ns())},
            {"p50", us(latencies.percentile_ns(0.5))},
            {"p99", us(latencies.percentile_ns(0.99))},
            {"p99_9", us(latencies.percentile_ns(0.999))},
            {"max", us(latencies.most_ns())}}}};
}

std::optional<std::string> impossible(const BenchOptions& options, const ImageName& name,
                                      const ImageEntry& image) {
  const std::string full = name.pool + "/" + name.name;
  if (!options.confirm.empty() && options.confirm != full) {
    return fmt::format("--confirm {} is not the name of the image: {}", options.confirm, full);
  }
  if (options.io_bytes > image.size_bytes) {
    return fmt::format("the image {} has {}, less than --io-size", full,
                       describe_bytes(image.size_bytes));
  }
  return std::nullopt;
}

ExitCode run_attached(const BenchOptions& options, const ImageName& name, MonClient& mon,
                      const Attached& attached, HolderId holder) {
  auto subscription = MapSubscription::start({.mon = options.mon});
  if (!subscription) {
    return print_failure(ExitCode::could_not, subscription.error().message(), options.format);
  }
  Bench bench{
      .options = options, .subscription = **subscription, .attached = attached, .holder = holder};
  const auto ran = run_on_shard(bench);
  const auto detached = mon.detach_image(
      {.image = attached.image.id, .holder = holder, .epoch = attached.attachment.epoch});
  if (!ran) return print_failure(ExitCode::could_not, ran.error().message(), options.format);
  if (bench.holds_data) {
    return print_failure(ExitCode::problems,
                         fmt::format("the image {0}/{1} holds data, which writing destroys; if "
                                     "that is meant: --confirm {0}/{1}",
                                     name.pool, name.name),
                         options.format);
  }
  if (bench.error) {
    return print_failure(ExitCode::could_not, bench.error->message(), options.format);
  }
  print_report(report_of(bench, name), options.format);
  if (!detached) {
    return print_failure(ExitCode::could_not, "detach: " + detached.error().message(),
                         options.format);
  }
  return ExitCode::ok;
}

}  // namespace

ExitCode run_image_bench(const BenchOptions& options) {
  const auto name = parse_image_name(options.image);
  if (!name) return print_failure(ExitCode::could_not, name.error().message(), options.format);
  const auto mon = MonClient::create({.mon = options.mon});
  if (!mon) return print_failure(ExitCode::could_not, mon.error().message(), options.format);
  const auto image = (*mon)->get_image(*name);
  if (!image) return print_failure(ExitCode::could_not, image.error().message(), options.format);
  if (const auto why = impossible(options, *name, *image)) {
    return print_failure(ExitCode::problems, *why, options.format);
  }
  std::random_device entropy;
  const HolderId holder(std::uint64_t{entropy()} << 32 | entropy());
  const AttachMode mode = writes(options.type) ? AttachMode::single_writer : AttachMode::read_only;
  const auto attached = (*mon)->attach_image({.image = image->id, .holder = holder, .mode = mode});
  if (!attached) {
    const bool used = is(attached.error(), MonError::in_use);
    return print_failure(used ? ExitCode::problems : ExitCode::could_not,
                         attached.error().message(), options.format);
  }
  return run_attached(options, *name, **mon, *attached, holder);
}

}  // namespace sarsen
