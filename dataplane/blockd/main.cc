// sarsen-blockd: turns images into block devices on its node. dataplane/docs/blockd.md says what
// survives what.
//
// Order      All that can be made beside a predecessor, memory and threads, comes first; then the
//            ServerLock, before anything of the predecessor is touched; keeper; images; sockets
//            last. So an upgrade is a short pause: start the new one, then end the old one.
// Threads    main waits for signals; one shard serves; gRPC's and the pool's threads may block.
#include <atomic>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataplane/blockd/blockd_options.h"
#include "dataplane/blockd/cached_map.h"
#include "dataplane/blockd/control/control_server.h"
#include "dataplane/blockd/fuse/server_process.h"
#include "dataplane/blockd/images.h"
#include "dataplane/blockd/nbd/nbd_server.h"
#include "dataplane/blockd/node_identity.h"
#include "dataplane/membership/rpc/map_subscription.h"
#include "dataplane/membership/rpc/mon_client.h"
#include "dataplane/runtime/uring/shard_runner.h"

namespace sarsen::blockd {
namespace {

// Waits for the predecessor's end, looking in between whether this one is to end.
constexpr int kPredecessorWaitMs = 200;

std::int64_t wall_time_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

class ClientSessions final : public Sessions {
 public:
  ClientSessions(const Env& env, MapSource& map) : env_(env), map_(map) {}
  Task<Result<std::unique_ptr<ImageSession>>> open(ImageSessionOptions options) override {
    return ImageSession::open(env_, map_, options);
  }

 private:
  const Env& env_;
  MapSource& map_;
};

// What main() made before the shard runs.
struct Process {
  BlockdOptions options;
  Logger log;
  HolderId holder{};
  std::unique_ptr<MonClient> mon;
  std::unique_ptr<MapSubscription> subscription;
  std::atomic<bool> stopping{false};
  bool failed = false;
};

// What only one blockd of a node has.
struct Predecessor {
  std::optional<fuse::ServerLock> lock;
  std::unique_ptr<fuse::KeeperLink> keeper;
};

// Blocks, for as long as the predecessor lives and serves.
Result<Predecessor> take_its_place(const Process& process) {
  Predecessor place;
  bool waited = false;
  while (!place.lock) {
    auto lock = fuse::ServerLock::acquire(process.options.lock_file(), kPredecessorWaitMs);
    if (lock) {
      place.lock.emplace(std::move(*lock));
    } else if (process.stopping.load() || !is(lock.error(), RuntimeError::overloaded)) {
      return fail(lock.error());
    } else if (!std::exchange(waited, true)) {
      process.log.info("another blockd serves this node; waits for its end");
    }
  }
  auto keeper = fuse::KeeperLink::start(process.options.keeper_socket);
  if (!keeper) return fail(keeper.error());
  place.keeper = std::move(*keeper);
  return place;
}

Result<void> listen_nbd(nbd::Server& server, const Process& process) {
  const auto listening = server.listen("unix:" + process.options.nbd_socket());
  if (!listening) return fail(listening.error());
  for (const std::string& address : process.options.nbd_tcp) {
    const auto bound = server.listen(address);
    if (!bound) return fail(bound.error());
    process.log.warning(
        "NBD WITHOUT ENCRYPTION OR AUTHENTICATION: whoever connects can read and "
        "write the images",
        {{"address", *bound}});
  }
  return {};
}

fuse::LoopHelper loop_helper(const BlockdOptions& options) {
  return options.loop_helper.empty() ? fuse::LoopHelper::beside_this_program()
                                     : fuse::LoopHelper(options.loop_helper);
}

std::string label_prefix(HolderId holder) {
  char hex[17];
  std::snprintf(hex, sizeof(hex), "%016llx", static_cast<unsigned long long>(holder.value));
  return std::string(fuse::kLabelPrefix) + hex + ":";
}

nbd::ServerLimits nbd_limits(const BlockdOptions& options) {
  nbd::ServerLimits limits;
  limits.bytes_in_flight_max = options.memory_bytes / 2;
  return limits;
}

Task<Result<void>> serve(ShardContext context, Process* process, nbd::Server* nbd, Images* images,
                         CachedMap* map, ShardCalls* calls) {
  const auto taken = co_await images->recover();
  if (!taken) co_return fail(taken.error());
  map->start(*taken > 0);
  SARSEN_CO_TRY(listen_nbd(*nbd, *process));
  auto control = ControlServer::start(process->options.control_socket(), *images, *calls);
  if (!control) co_return fail(control.error());
  process->log.info("serving", {{"holder", process->holder},
                                {"taken_over", *taken},
                                {"control", process->options.control_socket()},
                                {"nbd", process->options.nbd_socket()}});
  std::puts("sarsen-blockd: ready");
  std::fflush(stdout);
  co_await context.stop_requested();
  process->log.info("ends; devices wait for the next blockd");
  calls->refuse();
  Scope ending(context.env.executor);
  ending.spawn(nbd->stop());
  co_await images->stop();
  co_await calls->join();
  co_await ending.join();
  // Its threads wait for nothing of this shard any more.
  (void)co_await context.env.blocking.run([&control] {
    (*control)->stop();
    return true;
  });
  co_return Result<void>();
}

void end(Process* process, const Error& error) {
  if (!process->stopping.load()) {
    process->log.error("cannot serve", {{"error", error}});
    process->failed = true;
  }
  ::kill(::getpid(), SIGTERM);  // what main() waits for
}

Task<void> serve_in_place(ShardContext context, Process* process, MapSource* subscribed,
                          fuse::KeeperLink* keeper) {
  CachedMap map(context.env, *subscribed, process->options.map_file(),
                process->log.component("blockd.map"));
  ClientSessions sessions(context.env, map);
  const fuse::LoopHelper helper = loop_helper(process->options);
  // The other half is for NBD.
  BufferShares shares(context.env.buffers, process->options.memory_bytes / 2);
  Images images({context.env, context.reactor, map, *keeper, helper, *process->mon, sessions,
                 shares, process->log.component("blockd.images"), process->holder,
                 process->options.nbd_socket(), label_prefix(process->holder),
                 [&map] { return map.confirmed(); }});
  ShardCalls calls(context.reactor);
  nbd::Server nbd(context.env, images, nbd_limits(process->options));
  const auto outcome = co_await serve(context, process, &nbd, &images, &map, &calls);
  if (!outcome) {
    end(process, outcome.error());
    calls.refuse();
    co_await nbd.stop();
    co_await images.stop();
  }
  co_await map.stop();
}

Task<void> shard_main(ShardContext context, Process* process) {
  SubscribedMap subscribed(*process->subscription, context.reactor);
  auto place = co_await context.env.blocking.run([process] { return take_its_place(*process); });
  if (place) {
    co_await serve_in_place(context, process, &subscribed, place->keeper.get());
  } else {
    end(process, place.error());
  }
}

Result<void> prepare(Process& process) {
  const BlockdOptions& options = process.options;
  std::error_code error;
  std::filesystem::create_directories(options.run_dir, error);
  if (error) return fail(error_from_errno(error.value(), "create " + options.run_dir));
  const auto holder = load_or_make_node_id(options.state_dir);
  if (!holder) return fail(holder.error());
  process.holder = *holder;
  auto mon = MonClient::create({.mon = options.mon});
  if (!mon) return fail(mon.error());
  process.mon = std::move(*mon);
  auto subscription =
      MapSubscription::start({.mon = options.mon}, process.log.component("blockd.map"));
  if (!subscription) return fail(subscription.error());
  process.subscription = std::move(*subscription);
  return {};
}

int failed(const Logger& log, const Error& error) {
  log.error("cannot start", {{"error", error}});
  return 1;
}

int run(BlockdOptions options) {
  ::umask(0077);
  sigset_t ends;
  sigemptyset(&ends);
  for (const int signal : {SIGTERM, SIGINT}) sigaddset(&ends, signal);
  ::pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  // Before any thread: they inherit the flag.
  const auto prepared = fuse::become_block_server();
  const auto output =
      LogOutput::to_stderr({.level = options.log_level, .asynchronous = true}, wall_time_ns);
  Process process;
  process.options = std::move(options);
  process.log = Logger(*output);
  if (!prepared) {
    process.log.warning("under memory pressure this process may wait for itself",
                        {{"error", prepared.error()}});
  }
  if (const auto ready = prepare(process); !ready) return failed(process.log, ready.error());
  auto runner = ShardRunner::start(process.options.runner(), [&process](ShardContext context) {
    return shard_main(context, &process);
  });
  if (!runner) return failed(process.log, runner.error());
  int signal = 0;
  ::sigwait(&ends, &signal);
  process.stopping.store(true);
  (*runner)->request_stop();
  (*runner)->join();
  return process.failed ? 1 : 0;
}

}  // namespace
}  // namespace sarsen::blockd

int main(int argument_count, char** arguments) {
  auto parsed = sarsen::blockd::parse_arguments(argument_count, arguments);
  if (parsed.exit_status) return *parsed.exit_status;
  try {
    return sarsen::blockd::run(std::move(parsed.options));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "sarsen-blockd: %s\n", error.what());
    return 1;
  }
}
