#include "dataplane/blockd/blockd_options.h"

#include <CLI/CLI.hpp>
#include <map>

namespace sarsen::blockd {
namespace {

// The smallest with which a few images can be served.
constexpr std::uint64_t kMemoryBytesMin = 128 * kMiB;
// For mon, keeper and loop devices: a call may wait for one image, and holds up no other.
constexpr unsigned kBlockingThreads = 16;

constexpr const char* kDescription =
    "sarsen-blockd makes block devices of images on this node: /dev/loopN, and NBD exports on a "
    "unix socket. Devices outlive it: when it is killed, restarted or upgraded, I/O waits for the "
    "next one (sarsen-keeper holds the descriptors). Images are mapped with `sarsen image map`.";

constexpr const char* kExamples =
    "Examples:\n"
    "  sarsen-keeper --socket /run/sarsen/keeper.sock &\n"
    "  sarsen-blockd --mon unix:/run/sarsen/mon.sock\n"
    "  sarsen-blockd --mon tcp:10.0.0.1:7400 --cpu 3 --spin-us 50 --scheduling rr\n"
    "Then:\n"
    "  sarsen image map rbd/a            prints /dev/loop0\n"
    "  sarsen image mapped\n"
    "SIGTERM ends it and leaves all devices to the next blockd, which may be started before.\n"
    "Needs root: CAP_SYS_ADMIN for FUSE and loop devices, CAP_IPC_LOCK and CAP_SYS_RESOURCE to be "
    "safe under memory pressure.";

void add_all(CLI::App& app, BlockdOptions& options) {
  app.add_option("--mon", options.mon, "Where the mon listens: unix:PATH or tcp:HOST:PORT")
      ->envname("SARSEN_MON")
      ->capture_default_str();
  app.add_option("--state-dir", options.state_dir, "Keeps this node's identity (node-id)")
      ->capture_default_str();
  app.add_option("--run-dir", options.run_dir,
                 "Sockets (blockd.sock, nbd.sock) and what need not survive a boot")
      ->capture_default_str();
  app.add_option("--keeper", options.keeper_socket, "The keeper's socket (RUN-DIR/keeper.sock)");
  app.add_option("--loop-helper", options.loop_helper, "sarsen-loop (beside this program)");
  app.add_option("--nbd-listen", options.nbd_tcp,
                 "Also serves NBD at tcp:HOST:PORT, to anybody who can connect; needs --insecure");
  app.add_flag("--insecure", options.insecure,
               "Allows ports without encryption and without knowing who connects");
  app.add_option("--cpu", options.cpu, "Runs the I/O thread on this CPU only");
  add_daemon_flags(app, options, kMemoryBytesMin);
}

}  // namespace

ShardRunnerOptions BlockdOptions::runner() const {
  ShardRunnerOptions runner;
  apply_to(runner);
  runner.reactor.thread.name = "blockd";
  runner.reactor.thread.cpu = cpu;
  runner.blocking_threads = kBlockingThreads;
  return runner;
}

Parsed parse_arguments(int argument_count, const char* const* arguments) {
  Parsed parsed;
  BlockdOptions& options = parsed.options;
  CLI::App app(kDescription, "sarsen-blockd");
  app.set_version_flag("--version", SARSEN_VERSION);
  app.footer(kExamples);
  add_all(app, options);
  try {
    app.parse(argument_count, arguments);
    if (options.mon.starts_with("tcp:") && !options.insecure) {
      throw CLI::ValidationError("--mon", "'" + options.mon +
                                              "' has no encryption; give --insecure as well, or a "
                                              "unix: address");
    }
    if (!options.nbd_tcp.empty() && !options.insecure) {
      throw CLI::ValidationError("--nbd-listen",
                                 "NBD over TCP is neither encrypted nor authenticated: anybody who "
                                 "can connect reads and writes the images; add --insecure to "
                                 "accept that");
    }
    for (const std::string& address : options.nbd_tcp) {
      if (!address.starts_with("tcp:")) {
        throw CLI::ValidationError("--nbd-listen", "'" + address + "': expected tcp:HOST:PORT");
      }
    }
  } catch (const CLI::ParseError& error) {
    parsed.exit_status = app.exit(error) == 0 ? 0 : 2;
    return parsed;
  }
  if (options.keeper_socket.empty()) options.keeper_socket = options.run_dir + "/keeper.sock";
  return parsed;
}

}  // namespace sarsen::blockd
