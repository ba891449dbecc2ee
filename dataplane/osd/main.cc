// sarsen-osd: the OSDs of one machine, one for each device.
//
// Threads    main waits for signals; one shard for each device; gRPC's and the pool's threads may
//            block. A device that cannot be served does not keep the others from it.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <utility>

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dataplane/membership/rpc/map_subscription.h"
#include "dataplane/membership/rpc/mon_client.h"
#include "dataplane/osd/osd_options.h"
#include "dataplane/runtime/uring/disk_file.h"

namespace sarsen {
namespace {

std::int64_t wall_time_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
}

// What main() made before the shards run.
struct Process {
  OsdOptions options;
  Logger log;
  std::unique_ptr<MonClient> mon{};
  std::unique_ptr<MapSubscription> subscription{};
  std::atomic<std::uint32_t> devices_served{0};
  std::atomic<bool> failed{false};
};

struct OpenDevice {
  std::unique_ptr<Disk> disk;
  std::unique_ptr<BlockingDisk> blocking_disk;
  std::uint32_t osd = 0;
};

Task<Result<OpenDevice>> open_device(ShardContext context, std::string path) {
  auto file = DiskFile::open(path, OpenMode::exclusive);
  if (!file) co_return fail(file.error());
  OpenDevice device;
  auto disk = open_disk(*file, context.reactor);
  if (!disk) co_return fail(disk.error());
  device.disk = *std::move(disk);
  auto blocking_disk = open_blocking_disk(*file);
  if (!blocking_disk) co_return fail(blocking_disk.error());
  device.blocking_disk = *std::move(blocking_disk);
  // Its address depends on the number.
  const auto reading = co_await read_superblock(context.env, *device.disk);
  if (!reading) co_return fail(reading.error());
  device.osd = reading->superblock.osd_id;
  co_return device;
}

Task<void> cancel_when_stopped(ShardContext context, CancelSource* stop) {
  co_await context.stop_requested();
  stop->cancel(RuntimeError::stopped);
}

// The process ends when no device is left; main() waits for the signal.
void device_failed(Process& process, const std::string& path, const Error& error) {
  process.log.error("the device is not served", {{"device", path}, {"error", error}});
  process.failed = true;
  if (process.devices_served.fetch_sub(1) == 1) ::kill(::getpid(), SIGTERM);
}

Task<Result<void>> serve_device(ShardContext context, Process* process, std::string path) {
  const std::uint32_t number = context.env.shard.value;
  auto device = co_await open_device(context, path);
  if (!device) co_return fail(device.error());
  SubscribedMap map(*process->subscription, context.reactor);
  CancelSource stop(context.env.executor);
  Osd osd(context.env, *device->disk, *device->blocking_disk, map, *process->mon,
          process->options.place(number, device->osd), process->options.limits(), process->log);
  Scope scope(context.env.executor);
  scope.spawn(cancel_when_stopped(context, &stop));
  auto result = co_await osd.run(stop.token());
  const bool by_itself = !stop.cancelled();
  if (!result && by_itself) device_failed(*process, path, result.error());
  // When it ended by itself, the other devices go on: this scope ends with the process.
  co_await scope.join();
  co_return Result<void>();
}

Task<void> shard_main(ShardContext context, Process* process) {
  const std::string& path = process->options.devices[context.env.shard.value];
  const auto opened = co_await serve_device(context, process, path);
  if (!opened) device_failed(*process, path, opened.error());
}

int failed(const Logger& log, const Error& error) {
  log.error("cannot start", {{"error", error}});
  return 1;
}

// Only what is touched: stacks of many threads are mostly air.
void lock_memory(const Logger& log) {
  if (::mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) == 0) return;
  log.warning("memory is not locked: under memory pressure I/O may wait for swap",
              {{"error", error_from_errno(errno, "mlockall; raise RLIMIT_MEMLOCK")}});
}

int run(OsdOptions options) {
  sigset_t ends;
  sigemptyset(&ends);
  for (const int signal : {SIGTERM, SIGINT}) sigaddset(&ends, signal);
  ::pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  const auto output =
      LogOutput::to_stderr({.level = options.log_level, .asynchronous = true}, wall_time_ns);
  Process process{.options = std::move(options), .log = Logger(*output).component("osd")};
  lock_memory(process.log);
  if (process.options.insecure) {
    process.log.warning(
        "INSECURE: whoever reaches a tcp address of this cluster may read and destroy every image",
        {{"listen", process.options.listen}, {"mon", process.options.mon}});
  }
  auto mon = MonClient::create({.mon = process.options.mon});
  if (!mon) return failed(process.log, mon.error());
  process.mon = *std::move(mon);
  auto subscription = MapSubscription::start({.mon = process.options.mon}, process.log);
  if (!subscription) return failed(process.log, subscription.error());
  process.subscription = *std::move(subscription);
  process.devices_served = static_cast<std::uint32_t>(process.options.devices.size());
  auto runner = ShardRunner::start(process.options.runner(), [&process](ShardContext context) {
    return shard_main(context, &process);
  });
  if (!runner) return failed(process.log, runner.error());
  int signal = 0;
  ::sigwait(&ends, &signal);
  (*runner)->request_stop();
  (*runner)->join();
  return process.failed ? 1 : 0;
}

}  // namespace
}  // namespace sarsen

int main(int argument_count, char** arguments) {
  const auto parsed = sarsen::parse_osd_arguments(argument_count, arguments);
  if (parsed.exit_status) return *parsed.exit_status;
  return sarsen::run(parsed.options);
}
