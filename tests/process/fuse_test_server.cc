// Serves one file as one loop device, like sarsen-blockd but without a cluster, to be killed.
//
//   fuse_test_server --folder DIR --loop SARSEN_LOOP --name NAME --size BYTES [--sector 512|4096]
//   [--delay-us N]
//
// DIR holds keeper.sock, the lock and NAME.data. Prints "ready /dev/loopN" when it serves. SIGTERM
// leaves the device to the next server, SIGUSR1 unmaps it and ends, SIGUSR2 grows it by 16 MiB.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <utility>

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>

#include "dataplane/blockd/fuse/fuse_device.h"
#include "dataplane/blockd/fuse/server_process.h"
#include "dataplane/runtime/uring/shard_runner.h"
#include "tests/process/file_target.h"

namespace sarsen {
namespace {

constexpr int kPredecessorWaitMs = 10'000;

struct Arguments {
  std::string folder;
  std::string name = "test";
  std::string loop_program;
  std::uint64_t size = 64 * kMiB;
  std::uint32_t sector_bytes = 4096;
  std::int64_t delay_us = 0;
  bool failed = false;
};

void say(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

bool worked(const Result<void>& outcome, const char* doing) {
  if (!outcome) say(std::string("error: ") + doing + ": " + outcome.error().message());
  return outcome.has_value();
}

Task<int> next_signal(Reactor* reactor, int signals) {
  co_await RingOperation(*reactor, [signals](io_uring_sqe& entry) {
    io_uring_prep_poll_add(&entry, signals, POLLIN);
  });
  signalfd_siginfo info{};
  if (::read(signals, &info, sizeof(info)) != sizeof(info)) co_return 0;
  co_return static_cast<int>(info.ssi_signo);
}

// The device of a predecessor, or a new one.
Task<Result<void>> take_over_or_map(fuse::Device* device, fuse::KeeperLink* keeper,
                                    const Arguments* arguments) {
  auto held = keeper->recover();
  if (!held) co_return fail(held.error());
  for (keeper::Held& each : *held) {
    if (each.name != arguments->name) continue;
    co_return co_await device->take_over(std::move(each));
  }
  fuse::MapOptions options;
  options.name = arguments->name;
  options.sector_bytes = arguments->sector_bytes;
  co_return co_await device->map(std::move(options));
}

Task<void> serve_signals(fuse::Device* device, FileTarget* target, Reactor* reactor, int signals) {
  for (;;) {
    const int signal = co_await next_signal(reactor, signals);
    if (signal == SIGUSR2) {
      target->grow(16 * kMiB);
      if (worked(co_await device->resize(), "resize")) say("resized");
    } else if (signal == SIGUSR1) {
      if (!worked(co_await device->unmap(), "unmap")) continue;
      say("unmapped");
      co_return;
    } else if (signal == SIGTERM) {
      co_await device->stop();
      say("left");
      co_return;
    }
  }
}

std::string described(const fuse::ServerCounters& counters, const FileTarget& target) {
  return "requests " + std::to_string(counters.requests) + " resent " +
         std::to_string(counters.resent) + " in_flight_max " +
         std::to_string(counters.in_flight_max) + " errors " + std::to_string(counters.errors) +
         " trims " + std::to_string(target.trims) + " flushes " + std::to_string(target.flushes);
}

// Said a little later than "ready", because a killed server says nothing at its end.
Task<void> report_resent(Env* env, fuse::Device* device) {
  co_await env->clock.sleep(milliseconds(30));
  say("resent " + std::to_string(device->counters().resent));
}

Task<void> shard_main(ShardContext context, Arguments* arguments, fuse::KeeperLink* keeper,
                      int file, int signals) {
  arguments->failed = true;
  FileTarget target(context.env, file, microseconds(arguments->delay_us));
  const fuse::LoopHelper helper(arguments->loop_program);
  fuse::Device device({context.env, context.reactor, *keeper, helper}, target);
  if (!worked(co_await take_over_or_map(&device, keeper, arguments), "map")) co_return;
  say("ready " + device.path());
  Scope reports(context.env.executor);
  reports.spawn(report_resent(&context.env, &device));
  co_await serve_signals(&device, &target, &context.reactor, signals);
  co_await reports.join();
  say(described(device.counters(), target));
  arguments->failed = false;
}

keeper::Descriptor open_data(const Arguments& arguments) {
  const std::string path = arguments.folder + "/" + arguments.name + ".data";
  keeper::Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  const bool is_new = ::lseek(file.get(), 0, SEEK_END) == 0;
  if (is_new && ::ftruncate(file.get(), static_cast<off_t>(arguments.size)) != 0) file.reset();
  return file;
}

int run(Arguments arguments) {
  sigset_t handled;
  sigemptyset(&handled);
  for (const int signal : {SIGTERM, SIGUSR1, SIGUSR2}) sigaddset(&handled, signal);
  ::pthread_sigmask(SIG_BLOCK, &handled, nullptr);
  const int signals = ::signalfd(-1, &handled, SFD_CLOEXEC);
  // Not everywhere permitted, and not what is tested here.
  worked(fuse::become_block_server(), "prepare the process");
  const auto lock =
      fuse::ServerLock::acquire(arguments.folder + "/server.lock", kPredecessorWaitMs);
  if (!worked(lock.map([](const auto&) {}), "lock")) return 1;
  const auto keeper = fuse::KeeperLink::start(arguments.folder + "/keeper.sock");
  if (!worked(keeper.map([](const auto&) {}), "keeper")) return 1;
  const keeper::Descriptor file = open_data(arguments);
  auto runner = ShardRunner::start({}, [&](ShardContext context) {
    return shard_main(context, &arguments, keeper->get(), file.get(), signals);
  });
  if (!worked(runner.map([](const auto&) {}), "start")) return 1;
  (*runner)->join();
  return arguments.failed ? 1 : 0;
}

}  // namespace
}  // namespace sarsen

int main(int argc, char** argv) {
  CLI::App app("Serves one file as one loop device");
  sarsen::Arguments arguments;
  app.add_option("--folder", arguments.folder)->required();
  app.add_option("--name", arguments.name);
  app.add_option("--loop", arguments.loop_program)->required();
  app.add_option("--size", arguments.size);
  app.add_option("--sector", arguments.sector_bytes);
  app.add_option("--delay-us", arguments.delay_us);
  CLI11_PARSE(app, argc, argv);
  return sarsen::run(std::move(arguments));
}
