#include "dataplane/osd/osd_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include <unistd.h>

namespace sarsen {
namespace {

// The wire server needs room for one object beside what the store reads and writes.
constexpr std::uint64_t kMemoryBytesMin = 64 * kMiB;
// For each device: two for its index, one for a mon that may take its time.
constexpr unsigned kBlockingThreadsPerDevice = 3;

constexpr const char* kDescription =
    "sarsen-osd serves the devices of this machine to image sessions. Each device was made with "
    "`sarsen osd create`. It waits for the mon to start, and goes on without it. It may be killed "
    "at any moment: what was acknowledged is on the device.";

constexpr const char* kExamples =
    "Examples:\n"
    "  sarsen-osd --device /dev/nvme1n1\n"
    "  sarsen-osd --device /dev/nvme1n1 --device /dev/nvme2n1 --mon unix:/run/sarsen/mon.sock\n"
    "  sarsen-osd --device /dev/nvme1n1 --cpu 2 --spin-us 50 --scheduling rr --numa-node 0\n"
    "  sarsen-osd --device osd0.img --mon tcp:10.0.0.1:7400 --listen tcp:10.0.0.7:7410 "
    "--insecure\n"
    "One thread and one address per device: {osd} in a unix address is the OSD's number; tcp ports "
    "are counted up from the given one.\n"
    "SIGTERM ends it cleanly. Exit status: 0 ended by a signal; 1 it could not start or go on; 2 "
    "wrong usage.\n"
    "Needs O_DIRECT access to the devices, io_uring, and RLIMIT_MEMLOCK above --memory for each "
    "device (or CAP_IPC_LOCK).";

void add_all(CLI::App& app, OsdOptions& options) {
  app.add_option("--device", options.devices,
                 "A block device or file that holds an OSD; may be given several times")
      ->required()
      ->type_name("PATH");
  app.add_option("--mon", options.mon, "Where the mon listens: unix:PATH or tcp:HOST:PORT")
      ->envname("SARSEN_MON")
      ->capture_default_str();
  app.add_option("--listen", options.listen, "Where image sessions connect to")
      ->type_name("ADDRESS")
      ->capture_default_str();
  app.add_option("--advertise", options.advertised,
                 "What the map says instead, when clients reach it under another address")
      ->type_name("ADDRESS");
  app.add_option("--node", options.node, "Name of this machine, a failure domain (its host name)");
  app.add_flag("--insecure", options.insecure,
               "Allows tcp: without encryption and without knowing who connects");
  app.add_option("--scrub-rate", options.scrub_bytes_per_second,
                 "Reads everything once a day, this fast (default 4M a second; 0: never)")
      ->transform(CLI::AsSizeValue(false))
      ->type_name("BYTES");
  app.add_option("--cpu", options.cpus,
                 "Runs the thread of a device on this CPU only; once for each device")
      ->delimiter(',');
  add_daemon_flags(app, options, kMemoryBytesMin);
}

// What the parser cannot see by itself.
void check(OsdOptions& options) {
  const std::set<std::string> different(options.devices.begin(), options.devices.end());
  if (different.size() != options.devices.size()) {
    throw CLI::ValidationError("--device", "the same path twice");
  }
  if (!options.cpus.empty() && options.cpus.size() != options.devices.size()) {
    throw CLI::ValidationError("--cpu", "one for each device, or none");
  }
  for (const std::string& address : {options.listen, options.mon, options.advertised}) {
    if (address.starts_with("tcp:") && !options.insecure) {
      throw CLI::ValidationError(
          address,
          "has no encryption, and everybody who can connect may read and destroy all "
          "images; give --insecure as well, or a unix: address");
    }
  }
  if (options.listen.ends_with(":0")) {
    throw CLI::ValidationError("--listen", "needs a port that clients can be told");
  }
  if (options.devices.size() > 1 && options.listen.starts_with("unix:") &&
      options.listen.find("{osd}") == std::string::npos) {
    throw CLI::ValidationError("--listen", "several devices need {osd} in a unix: address");
  }
  if (options.node.empty()) {
    char name[256] = {};
    if (::gethostname(name, sizeof(name) - 1) == 0) options.node = name;
  }
}

Address place_address(Address address, std::uint32_t device, std::uint32_t osd) {
  const std::string_view kPlace = "{osd}";
  if (const auto at = address.find(kPlace); at != std::string::npos) {
    return address.replace(at, kPlace.size(), std::to_string(osd));
  }
  const auto colon = address.rfind(':');
  if (!address.starts_with("tcp:") || device == 0) return address;
  unsigned port = 0;
  std::from_chars(address.data() + colon + 1, address.data() + address.size(), port);
  return address.substr(0, colon + 1) + std::to_string(port + device);
}

}  // namespace

ShardRunnerOptions OsdOptions::runner() const {
  const auto count = static_cast<std::uint32_t>(devices.size());
  ShardRunnerOptions runner;
  apply_to(runner);
  runner.shard_count = count;
  runner.cpus = cpus;
  runner.reactor.thread.name = "osd";
  runner.blocking_threads = kBlockingThreadsPerDevice * count;
  return runner;
}

// Requests of clients get half of the memory; the rest is what the store reads and merges with.
OsdLimits OsdOptions::limits() const {
  OsdLimits limits;
  limits.server.data_bytes_max = memory_bytes / 2;
  limits.client_bytes_max = std::min(limits.client_bytes_max, memory_bytes / 4);
  limits.scrub_bytes_per_second = scrub_bytes_per_second;
  return limits;
}

OsdPlace OsdOptions::place(std::uint32_t device, std::uint32_t osd) const {
  return {.listen = place_address(listen, device, osd),
          .advertised = place_address(advertised, device, osd),
          .node = node};
}

ParsedOsdOptions parse_osd_arguments(int argument_count, const char* const* arguments) {
  ParsedOsdOptions parsed;
  CLI::App app(kDescription, "sarsen-osd");
  app.set_version_flag("--version", SARSEN_VERSION);
  app.footer(kExamples);
  add_all(app, parsed.options);
  try {
    app.parse(argument_count, arguments);
    check(parsed.options);
  } catch (const CLI::ParseError& error) {
    parsed.exit_status = app.exit(error) == 0 ? 0 : 2;
  }
  return parsed;
}

}  // namespace sarsen
