// sarsen-mon: the cluster map, its decisions, and the admin API.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <exception>
#include <string>
#include <vector>

#include <pthread.h>
#include <signal.h>

#include "dataplane/base/log.h"
#include "dataplane/mon/mon_server.h"
#include "dataplane/mon/store/rocksdb_map_store.h"

namespace sarsen {
namespace {

constexpr Duration kTick = seconds(1);
// A tick that comes later than this was late because the mon was paused, not the OSDs.
constexpr Duration kTickMax = seconds(2);

struct MonOptions {
  std::string data;
  std::vector<std::string> listen{"unix:/run/sarsen/mon.sock"};
  bool insecure = false;
  std::string log_level = "info";
};

std::int64_t clock_ns(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
}

void add_options(CLI::App& app, MonOptions& options) {
  app.add_option("--data", options.data,
                 "Folder of the map store; made by 'sarsen cluster create', never by this program")
      ->required()
      ->type_name("DIR");
  app.add_option("--listen", options.listen,
                 "Where to listen: unix:PATH or tcp:HOST:PORT; may be given several times")
      ->type_name("ADDRESS")
      ->capture_default_str();
  app.add_flag("--insecure", options.insecure,
               "Allow tcp addresses, where everybody who can connect may do everything");
  app.add_option("--log-level", options.log_level, "debug, info, warning, error or off")
      ->capture_default_str();
  app.set_version_flag("--version", SARSEN_VERSION);
  app.footer(
      "Examples:\n"
      "  sarsen cluster create --data /var/lib/sarsen/mon\n"
      "  sarsen-mon --data /var/lib/sarsen/mon\n"
      "  sarsen-mon --data /var/lib/sarsen/mon --listen unix:/run/sarsen/mon.sock "
      "--listen tcp:127.0.0.1:7400 --insecure\n"
      "\nSIGTERM and SIGINT end it cleanly; it may also be killed at any moment. Exit status: 0 "
      "ended by a signal; 1 it could not start or go on; 2 wrong usage.");
}

// SIGTERM and SIGINT are waited for, by main() alone.
sigset_t block_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigset_t blocked = signals;
  sigaddset(&blocked, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  return signals;
}

// Until a signal came (true) or the mon failed (false).
bool serve(Mon& mon, const sigset_t& signals) {
  std::int64_t last = clock_ns(CLOCK_MONOTONIC);
  while (!mon.failed()) {
    const timespec wait{.tv_sec = kTick.value / 1'000'000'000, .tv_nsec = 0};
    if (::sigtimedwait(&signals, nullptr, &wait) > 0) return true;
    const std::int64_t now = clock_ns(CLOCK_MONOTONIC);
    mon.tick(std::min(Duration(now - last), kTickMax));
    last = now;
  }
  return false;
}

int fail_with(const std::string& sentence) {
  std::fprintf(stderr, "sarsen-mon: %s\n", sentence.c_str());
  return 1;
}

int run(const MonOptions& options) {
  const auto level = log_level_from(options.log_level);
  if (!level) {
    std::fprintf(stderr, "sarsen-mon: no log level '%s'\n", options.log_level.c_str());
    return 2;
  }
  const bool plain = std::ranges::any_of(
      options.listen, [](const std::string& address) { return address.starts_with("tcp:"); });
  if (plain && !options.insecure) {
    return fail_with(
        "a tcp address lets everybody who can connect do everything; give --insecure as well, or "
        "listen on unix:PATH");
  }
  const sigset_t signals = block_signals();
  const auto wall_time = [] { return clock_ns(CLOCK_REALTIME); };
  const auto output = LogOutput::to_stderr({.level = *level, .asynchronous = true}, wall_time);
  const Logger log = Logger(*output).component("mon");

  auto store = RocksdbMapStore::open(options.data);
  if (!store) return fail_with(store.error().message());
  auto mon = Mon::start(**store, wall_time, log);
  if (!mon) return fail_with(mon.error().message());
  auto server = MonServer::start(**mon, options.listen);
  if (!server) return fail_with(server.error().message());
  if (plain) {
    log.warning("INSECURE: whoever reaches the tcp address may read and destroy every image");
  }
  for (const Address& address : (*server)->addresses()) {
    log.info("serving", {{"address", address}, {"epoch", (*mon)->state()->map.epoch}});
  }
  const bool asked = serve(**mon, signals);
  log.info("stopping");
  (*server)->stop();
  if (asked) return 0;
  return fail_with(
      "the map store failed; what was acknowledged is in it, start again when it works");
}

}  // namespace
}  // namespace sarsen

int main(int argument_count, char** arguments) {
  try {
    sarsen::MonOptions options;
    CLI::App app("The cluster map of Sarsen and its admin API.", "sarsen-mon");
    sarsen::add_options(app, options);
    try {
      app.parse(argument_count, arguments);
    } catch (const CLI::ParseError& error) {
      return app.exit(error) == 0 ? 0 : 2;
    }
    return sarsen::run(options);
  } catch (const std::exception& error) {
    return sarsen::fail_with(error.what());
  }
}
