// Drives a store on the production runtime; hack/bench puts it side by side with fio.
//
//   sarsen_store_bench FILE
//
// Reads one command a line, answers each with one line of JSON:
//   format JOURNAL_BYTES                 overwrites FILE
//   open [HOME_WRITES]                   seconds that it took, and what recovery met
//   fill OBJECTS                         writes whole objects, 1 MiB at a time, 4 at once
//   write DEPTH OBJECTS SECONDS          4 KiB at random blocks of objects that were filled
//   read DEPTH OBJECTS SECONDS           the same, reading
//   write_large | read_large DEPTH OBJECTS SECONDS     1 MiB, one object after the other
//   checkpoint                           moves everything home
//   rest SECONDS                         does nothing, and tells what that costs
//   quit                                 a clean stop; the end of the input is an unclean one
//
// The checksums that a caller of the store brings are computed beforehand: they are its cost. Those
// that the store computes are counted.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <time.h>

#include "dataplane/base/crc32c.h"
#include "dataplane/base/rng.h"
#include "dataplane/runtime/uring/disk_file.h"
#include "dataplane/runtime/uring/shard_runner.h"
#include "dataplane/runtime/when_all.h"
#include "dataplane/store/store.h"

namespace sarsen {
namespace {

using nlohmann::json;

constexpr std::uint64_t kLargeBytes = kMiB;
constexpr std::uint64_t kLargePerObject = kObjectBytes / kLargeBytes;
constexpr std::uint32_t kFillDepth = 4;
constexpr std::size_t kPatternBlocks = kLargeBytes / kBlockBytes;

double process_cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

[[noreturn]] void give_up(const std::string& what, const Error& error) {
  std::fprintf(stderr, "store_bench: %s: %s\n", what.c_str(), error.message().c_str());
  std::_Exit(1);
}

template <typename T>
T must(const char* what, Result<T> result) {
  if (!result) give_up(what, result.error());
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

// What the callers write: blocks that differ, with their checksums.
struct Pattern {
  explicit Pattern(BufferPool& pool) : buffer(must("memory", pool.allocate(kLargeBytes))) {
    Rng rng(1);
    for (std::size_t i = 0; i < kLargeBytes; i += sizeof(std::uint64_t)) {
      const std::uint64_t word = rng.next();
      std::memcpy(buffer.data() + i, &word, sizeof(word));
    }
    for (std::size_t i = 0; i < kPatternBlocks; ++i) checksums.push_back(crc32c(block(i)));
  }
  std::span<const std::byte> block(std::size_t i) const {
    return buffer.span(i * kBlockBytes, kBlockBytes);
  }
  Buffer buffer;
  std::vector<std::uint32_t> checksums;
};

enum class Work { write_block, read_block, write_large, read_large };

bool is_large(Work work) {
  return work == Work::write_large || work == Work::read_large;
}

// One run of `depth` callers, each with one operation at a time.
struct Load {
  Work work;
  std::uint32_t depth = 1;
  std::uint64_t objects = 0;
  BootTime end;
  std::uint64_t operations_max = ~std::uint64_t{0};
  std::uint64_t started = 0;
  std::vector<std::uint32_t> latencies_ns = {};
};

class Bench {
 public:
  Bench(ShardContext context, std::string path)
      : env_(context.env),
        file_(must("the file", DiskFile::open(std::move(path), OpenMode::exclusive))),
        disk_(must("the disk", open_disk(file_, context.reactor))),
        blocking_disk_(must("the disk", open_blocking_disk(file_))),
        pattern_(env_.buffers),
        rng_(static_cast<std::uint64_t>(env_.clock.now().value)),
        reactor_(context.reactor) {}

  // False when the bench is over.
  Task<bool> obey(std::string line);
  Task<void> stop();

 private:
  static ObjectKey object(std::uint64_t number) {
    return {.pool = PoolId(1), .family = 1, .branch = 1, .object_number = number};
  }
  Task<json> measure(Load load);
  Task<void> call(Load* load);
  Task<Result<void>> operate(Load* load, std::span<std::byte> into);
  json report(Load& load, double seconds) const;

  Env& env_;
  std::shared_ptr<DiskFile> file_;
  std::unique_ptr<Disk> disk_;
  std::unique_ptr<BlockingDisk> blocking_disk_;
  Pattern pattern_;
  Rng rng_;
  Reactor& reactor_;
  std::unique_ptr<Store> store_;
};

Task<Result<void>> Bench::operate(Load* load, std::span<std::byte> into) {
  const std::uint64_t number = load->started++;
  if (is_large(load->work)) {
    const ObjectKey key = object(number / kLargePerObject % load->objects);
    const auto first = static_cast<std::uint32_t>(number % kLargePerObject * kPatternBlocks);
    if (load->work == Work::read_large) return store_->read(key, first, into);
    return store_->write({.object = key,
                          .first_block = first,
                          .data = pattern_.buffer.span(0, kLargeBytes),
                          .checksums = pattern_.checksums,
                          .stamp = {}});
  }
  const ObjectKey key = object(rng_.below(load->objects));
  const auto block = static_cast<std::uint32_t>(rng_.below(kBlocksPerObject));
  if (load->work == Work::read_block) return store_->read(key, block, into);
  const std::size_t i = rng_.below(kPatternBlocks);
  return store_->write({.object = key,
                        .first_block = block,
                        .data = pattern_.block(i),
                        .checksums = std::span(pattern_.checksums).subspan(i, 1),
                        .stamp = {}});
}

Task<void> Bench::call(Load* load) {
  const Buffer buffer =
      must("memory", env_.buffers.allocate(is_large(load->work) ? kLargeBytes : kBlockBytes));
  BootTime before = env_.clock.now();
  while (load->started < load->operations_max && before < load->end) {
    must("an operation", co_await operate(load, buffer.span()));
    const BootTime after = env_.clock.now();
    load->latencies_ns.push_back(static_cast<std::uint32_t>((after - before).value));
    before = after;
  }
}

Task<json> Bench::measure(Load load) {
  load.latencies_ns.reserve(1 << 20);
  const StoreStats stats = store_->stats();
  const ReactorCounters counters = reactor_.counters();
  const double cpu = process_cpu_seconds();
  const BootTime start = env_.clock.now();
  std::vector<Task<void>> callers;
  for (std::uint32_t i = 0; i < load.depth; ++i) callers.push_back(call(&load));
  co_await when_all(env_.executor, std::move(callers));
  const double seconds = static_cast<double>((env_.clock.now() - start).value) / 1e9;
  json answer = report(load, seconds);
  const auto count = static_cast<double>(std::max<std::size_t>(load.latencies_ns.size(), 1));
  answer["cpu_us"] = (process_cpu_seconds() - cpu) * 1e6 / count;
  answer["enters"] =
      static_cast<double>(reactor_.counters().system_calls - counters.system_calls) / count;
  const StoreStats after = store_->stats();
  answer["user_bytes"] = after.user_bytes_written - stats.user_bytes_written;
  answer["journal_bytes"] = after.journal_bytes_written - stats.journal_bytes_written;
  answer["home_bytes"] = after.home_bytes_written - stats.home_bytes_written;
  answer["metadata_bytes"] = after.metadata_bytes_written - stats.metadata_bytes_written;
  answer["checkpoints"] = after.checkpoints - stats.checkpoints;
  co_return answer;
}

json Bench::report(Load& load, double seconds) const {
  auto& latencies = load.latencies_ns;
  std::sort(latencies.begin(), latencies.end());
  const auto at = [&latencies](double share) {
    if (latencies.empty()) return 0.0;
    const auto index = static_cast<std::size_t>(share * static_cast<double>(latencies.size() - 1));
    return latencies[index] / 1e3;
  };
  const auto count = static_cast<double>(latencies.size());
  const double sum = std::accumulate(latencies.begin(), latencies.end(), 0.0);
  return {{"operations", latencies.size()},
          {"seconds", seconds},
          {"per_second", count / seconds},
          {"mean_us", latencies.empty() ? 0.0 : sum / count / 1e3},
          {"p50_us", at(0.5)},
          {"p99_us", at(0.99)},
          {"max_us", at(1.0)}};
}

Task<bool> Bench::obey(std::string line) {
  std::istringstream words(line);
  std::string verb;
  words >> verb;
  const auto number = [&words] {
    std::uint64_t value = 0;
    words >> value;
    return value;
  };
  json answer = {{"done", verb}};
  const BootTime start = env_.clock.now();
  const auto elapsed = [&] { return static_cast<double>((env_.clock.now() - start).value) / 1e9; };
  if (verb == "format") {
    FormatOptions options;
    options.sizes.journal_bytes = number();
    must("format", co_await Store::format(env_, *disk_, *blocking_disk_, options));
  } else if (verb == "open") {
    StoreLimits limits;
    // Work that a pause would do is work of the writes: it must not vanish between two slices.
    limits.idle_destage_after = seconds(3600);
    if (const std::uint64_t writes = number(); writes != 0) {
      limits.home_writes_max = static_cast<std::uint32_t>(writes);
    }
    store_ = must("open", co_await Store::open(env_, *disk_, *blocking_disk_, limits));
    answer["seconds"] = elapsed();
    answer["records"] = store_->recovery().records_replayed;
    const StoreGeometry& geometry = store_->superblock().geometry;
    answer["journal_bytes"] = geometry.segment_bytes * geometry.segment_count;
  } else if (verb == "fill") {
    const std::uint64_t objects = number();
    answer = co_await measure({.work = Work::write_large,
                               .depth = kFillDepth,
                               .objects = objects,
                               .end = kNever,
                               .operations_max = objects * kLargePerObject});
  } else if (verb == "write" || verb == "read" || verb == "write_large" || verb == "read_large") {
    const Work work = verb == "write"         ? Work::write_block
                      : verb == "read"        ? Work::read_block
                      : verb == "write_large" ? Work::write_large
                                              : Work::read_large;
    const auto depth = static_cast<std::uint32_t>(number());
    const std::uint64_t objects = number();
    const BootTime end = env_.clock.now() + seconds(static_cast<std::int64_t>(number()));
    answer = co_await measure({.work = work, .depth = depth, .objects = objects, .end = end});
  } else if (verb == "checkpoint") {
    must("checkpoint", co_await store_->checkpoint());
    answer["seconds"] = elapsed();
  } else if (verb == "rest") {
    const double cpu = process_cpu_seconds();
    co_await env_.clock.sleep(seconds(static_cast<std::int64_t>(number())));
    answer["cpu_percent"] = (process_cpu_seconds() - cpu) / elapsed() * 100;
  } else if (verb == "quit") {
    co_return false;
  } else {
    answer = {{"error", "no command '" + verb + "'"}};
  }
  std::cout << answer.dump() << std::endl;
  co_return true;
}

Task<void> Bench::stop() {
  if (store_) co_await store_->stop();
}

Task<void> run(ShardContext context, std::string path) {
  Bench bench(context, std::move(path));
  while (true) {
    auto line = co_await context.env.blocking.run([] {
      std::string text;
      // Unclean: whoever drives the bench wants to see what a restart finds.
      if (!std::getline(std::cin, text)) std::_Exit(0);
      return text;
    });
    const bool go_on = co_await bench.obey(std::move(line));
    if (!go_on) break;
  }
  co_await bench.stop();
}

}  // namespace
}  // namespace sarsen

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FILE (see the head of tests/perf/store_bench.cc)\n", argv[0]);
    return 2;
  }
  const std::string path = argv[1];
  sarsen::ShardRunnerOptions options;
  options.buffers.bytes = 128 * sarsen::kMiB;
  // One of them waits for commands.
  options.blocking_threads = 3;
  auto runner = sarsen::ShardRunner::start(
      options, [&path](sarsen::ShardContext context) { return sarsen::run(context, path); });
  if (!runner) {
    std::fprintf(stderr, "store_bench: %s\n", runner.error().message().c_str());
    return 1;
  }
  (*runner)->join();
  return 0;
}
