// Serves memory over NBD, to be tried with other people's clients.
//
//   nbd_test_server --unix PATH [--size BYTES]
//
// Exports: "disk" (also the default), "fixed" (read-only; its first MiB is 0x5a), "sectors" (whole
// 512-byte units only), "full" (answers every request that there is no space). Listens on the unix
// socket and on a free TCP port of 127.0.0.1. Prints "ready unix:PATH tcp:HOST:PORT"; SIGTERM
// drains and ends it.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <signal.h>
#include <unistd.h>

#include "dataplane/blockd/nbd/nbd_server.h"
#include "dataplane/runtime/error.h"
#include "dataplane/runtime/uring/shard_runner.h"
#include "tests/support/memory_target.h"

namespace sarsen {
namespace {

struct Arguments {
  std::string socket;
  std::uint64_t size = 64 * kMiB;
  bool failed = false;
};

void say(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

class FourExports final : public nbd::Exports {
 public:
  FourExports(Executor& executor, std::uint64_t size) {
    add(executor, "disk", "memory, zeros at first", size, false, 1);
    add(executor, "fixed", "memory that does not change", size, true, 1);
    add(executor, "sectors", "memory in units of 512 bytes", size, false, 512);
    add(executor, "full", "a pool without space", size, false, 1)
        .fail_with(make_error(RuntimeError::no_space, "pool test"));
  }
  std::vector<nbd::ExportSummary> list() override {
    std::vector<nbd::ExportSummary> summaries;
    for (const auto& [name, opened] : exports_) summaries.push_back(opened.summary);
    return summaries;
  }
  Task<Result<nbd::Export>> open(std::string name) override {
    const auto found = exports_.find(name.empty() ? "disk" : name);
    if (found == exports_.end()) co_return fail(make_error(RuntimeError::not_found, name));
    co_return found->second;
  }

 private:
  test::MemoryTarget& add(Executor& executor, std::string name, std::string description,
                          std::uint64_t size, bool read_only, std::uint32_t block_bytes_min) {
    auto target = std::make_shared<test::MemoryTarget>(executor, size, read_only);
    test::MemoryTarget& made = *target;
    exports_[name] = {{name, std::move(description)}, std::move(target), block_bytes_min};
    return made;
  }
  std::map<std::string, nbd::Export> exports_;
};

Task<void> shard_main(ShardContext context, Arguments* arguments) {
  FourExports exports(context.env.executor, arguments->size);
  const std::vector<std::byte> filling(kMiB, std::byte{0x5a});
  const auto fixed = co_await exports.open("fixed");
  (void)co_await fixed->target->write(0, filling);
  nbd::Server server(context.env, exports);
  const auto unix_address = server.listen("unix:" + arguments->socket);
  const auto tcp_address = server.listen("tcp:127.0.0.1:0");
  if (unix_address && tcp_address) {
    say("ready " + *unix_address + " " + *tcp_address);
    co_await context.stop_requested();
  } else {
    say("error: " + (unix_address ? tcp_address : unix_address).error().message());
    arguments->failed = true;
    ::kill(::getpid(), SIGTERM);  // what main() waits for
  }
  co_await server.stop();
  const nbd::ServerStats& stats = server.stats();
  say("connections " + std::to_string(stats.connections_accepted) + " failed " +
      std::to_string(stats.connections_failed) + " replies " + std::to_string(stats.replies_done) +
      " " + stats.last_failure);
}

int run(Arguments arguments) {
  sigset_t ends;
  sigemptyset(&ends);
  for (const int signal : {SIGTERM, SIGINT}) sigaddset(&ends, signal);
  ::pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  ShardRunnerOptions options;
  options.buffers.bytes = 128 * kMiB;
  auto runner = ShardRunner::start(
      options, [&arguments](ShardContext context) { return shard_main(context, &arguments); });
  if (!runner) {
    say("error: " + runner.error().message());
    return 1;
  }
  int signal = 0;
  ::sigwait(&ends, &signal);
  (*runner)->request_stop();
  (*runner)->join();
  return arguments.failed ? 1 : 0;
}

}  // namespace
}  // namespace sarsen

int main(int argc, char** argv) {
  CLI::App app("Serves memory over NBD");
  sarsen::Arguments arguments;
  app.add_option("--unix", arguments.socket)->required();
  app.add_option("--size", arguments.size);
  CLI11_PARSE(app, argc, argv);
  return sarsen::run(std::move(arguments));
}
