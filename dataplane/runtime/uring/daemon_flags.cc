#include "dataplane/runtime/uring/daemon_flags.h"

#include <CLI/CLI.hpp>
#include <map>
#include <string>

namespace sarsen {
namespace {

constexpr std::uint64_t kMemoryBytesMax = 64 * kGiB;

std::string mebibytes(std::uint64_t bytes) {
  return std::to_string(bytes / kMiB) + "M";
}

}  // namespace

void DaemonFlags::apply_to(ShardRunnerOptions& runner) const {
  runner.reactor.thread.scheduling = scheduling;
  runner.reactor.thread.realtime_priority = realtime_priority;
  runner.reactor.thread.numa_node = numa_node;
  runner.reactor.spin_window = microseconds(spin_us);
  runner.buffers.bytes = memory_bytes;
  runner.buffers.numa_node = numa_node;
}

void add_daemon_flags(CLI::App& app, DaemonFlags& flags, std::uint64_t memory_bytes_min) {
  static const std::map<std::string, SchedulingPolicy> kPolicies{
      {"other", SchedulingPolicy::other},
      {"rr", SchedulingPolicy::round_robin},
      {"fifo", SchedulingPolicy::fifo}};
  static const std::map<std::string, LogLevel> kLevels{{"debug", LogLevel::debug},
                                                       {"info", LogLevel::info},
                                                       {"warning", LogLevel::warning},
                                                       {"error", LogLevel::error}};
  app.add_option(
         "--memory", flags.memory_bytes,
         "I/O memory of each I/O thread, locked (default " + mebibytes(flags.memory_bytes) + ")")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(memory_bytes_min, kMemoryBytesMax)
                  .description(mebibytes(memory_bytes_min) + " to 64G"))
      ->type_name("BYTES");
  app.add_option("--numa-node", flags.numa_node, "Takes I/O memory from this node");
  app.add_option("--scheduling", flags.scheduling,
                 "other (default), rr or fifo: real time, needs CAP_SYS_NICE")
      ->transform(CLI::CheckedTransformer(kPolicies, CLI::ignore_case).description(""))
      ->type_name("POLICY");
  app.add_option("--realtime-priority", flags.realtime_priority, "1 to 99, for rr and fifo")
      ->check(CLI::Range(1, 99));
  app.add_option("--spin-us", flags.spin_us,
                 "Looks for work this long before it sleeps (default 0); only for CPUs that "
                 "nobody else uses")
      ->check(CLI::Range(0, 1'000'000));
  app.add_option("--log-level", flags.log_level, "debug, info (default), warning or error")
      ->transform(CLI::CheckedTransformer(kLevels, CLI::ignore_case).description(""))
      ->type_name("LEVEL");
}

}  // namespace sarsen
