#include "tests/sim/campaign.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dataplane/base/assert.h"
#include "tests/sim/failure_line.h"

namespace sarsen::sim {
namespace {

// Small, so that a crash loses little and the processes end together.
constexpr std::uint64_t kSeedsPerProcess = 16;

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// One forked process and the seeds it was given.
struct Worker {
  pid_t pid = -1;
  int pipe = -1;
  std::uint64_t next = 0;  // the first seed that has not reported
  std::uint64_t end = 0;
  std::string unread;
};

class Campaign {
 public:
  Campaign(const WorkloadEntry& workload, const CampaignOptions& options)
      : workload_(workload),
        options_(options),
        next_seed_(options.first_seed),
        end_seed_(options.first_seed + options.seeds),
        began_(now_seconds()) {}

  CampaignTotals run();

 private:
  bool runs_twice(std::uint64_t seed) const {
    return Rng(seed ^ 0x5eedu).below(100) < options_.double_run_percent;
  }
  FailureLine line_of(std::uint64_t seed) const {
    return {seed, options_.operations, std::string(workload_.name), options_.planted,
            options_.commit};
  }
  [[noreturn]] void work(std::uint64_t first, std::uint64_t end, int out);
  SeedReport run_one(std::uint64_t seed);
  void start(std::uint64_t first, std::uint64_t end);
  void take_output(Worker& worker);
  void take_report(Worker& worker, const std::string& line);
  void retire(std::size_t index);
  void progress();
  void stop();

  const WorkloadEntry& workload_;
  const CampaignOptions& options_;
  std::uint64_t next_seed_;
  const std::uint64_t end_seed_;
  std::vector<Worker> workers_;
  CampaignTotals totals_;
  double began_;
  double reported_ = 0;
  bool stopping_ = false;
};

SeedReport Campaign::run_one(std::uint64_t seed) {
  guard_seed(line_of(seed), options_.seed_seconds_max);
  SeedOptions options{seed, options_.operations, options_.planted, nullptr};
  if (!options_.trace_path.empty()) {
    options.trace_file = std::fopen(options_.trace_path.c_str(), "w");
    if (options.trace_file == nullptr) std::perror(options_.trace_path.c_str());
  }
  SeedReport report = runs_twice(seed) ? run_seed_twice(workload_, options, guard_simulator)
                                       : run_seed(workload_, options, guard_simulator);
  if (options.trace_file != nullptr) std::fclose(options.trace_file);
  end_guard();
  return report;
}

void Campaign::work(std::uint64_t first, std::uint64_t end, int out) {
  for (std::uint64_t seed = first; seed < end; ++seed) {
    const std::string line = encode(run_one(seed)) + "\n";
    for (std::size_t at = 0; at < line.size();) {
      const ssize_t written = ::write(out, line.data() + at, line.size() - at);
      if (written <= 0) ::_exit(4);  // nobody listens any more
      at += static_cast<std::size_t>(written);
    }
  }
  std::fflush(nullptr);
  ::_exit(0);
}

void Campaign::start(std::uint64_t first, std::uint64_t end) {
  int ends[2];
  SARSEN_ASSERT(::pipe(ends) == 0, "the machine has a pipe for the simulator");
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  SARSEN_ASSERT(pid >= 0, "the machine has a process for the simulator");
  if (pid == 0) {
    ::close(ends[0]);
    work(first, end, ends[1]);
  }
  ::close(ends[1]);
  workers_.push_back({pid, ends[0], first, end, {}});
}

void Campaign::take_output(Worker& worker) {
  char bytes[4096];
  const ssize_t length = ::read(worker.pipe, bytes, sizeof(bytes));
  if (length <= 0) {
    if (length < 0 && errno == EINTR) return;
    ::close(worker.pipe);
    worker.pipe = -1;
    return;
  }
  worker.unread.append(bytes, static_cast<std::size_t>(length));
  for (std::size_t end; (end = worker.unread.find('\n')) != std::string::npos;) {
    take_report(worker, worker.unread.substr(0, end));
    worker.unread.erase(0, end + 1);
  }
}

void Campaign::take_report(Worker& worker, const std::string& line) {
  if (stopping_) return;
  const SeedReport report = decode_report(line);
  worker.next = report.seed + 1;
  totals_.add(report);
  if (runs_twice(report.seed)) ++totals_.double_runs;
  if (!report.passed()) {
    std::puts(failure_line(line_of(report.seed), report.option_hash, report.failed_at_event,
                           report.failure)
                  .c_str());
    std::fflush(stdout);
  }
}

// A worker that has ended. The seed it did not report has failed: its line is printed already.
void Campaign::retire(std::size_t index) {
  Worker worker = std::move(workers_[index]);
  workers_.erase(workers_.begin() + static_cast<std::ptrdiff_t>(index));
  int status = 0;
  ::waitpid(worker.pid, &status, 0);
  if (worker.next == worker.end || stopping_) return;
  ++totals_.failed;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 3) {
    std::puts(failure_line(line_of(worker.next), 0, 0, "the process was killed").c_str());
    std::fflush(stdout);
  }
  if (worker.next + 1 < worker.end) start(worker.next + 1, worker.end);
}

void Campaign::progress() {
  const double now = now_seconds();
  if (options_.quiet || now - reported_ < 3) return;
  reported_ = now;
  std::fprintf(stderr, "sim %s: %lu of %lu seeds, %lu failed, %.0f s\n",
               std::string(workload_.name).c_str(), totals_.passed + totals_.failed, options_.seeds,
               totals_.failed, now - began_);
}

CampaignTotals Campaign::run() {
  reported_ = began_;
  if (options_.in_this_process) {
    Worker here;
    for (; next_seed_ < end_seed_; ++next_seed_) take_report(here, encode(run_one(next_seed_)));
  }
  while (true) {
    if (options_.stop_at_first_failure && totals_.failed != 0) stop();
    while (!stopping_ && workers_.size() < options_.processes && next_seed_ < end_seed_) {
      const std::uint64_t end = std::min(end_seed_, next_seed_ + kSeedsPerProcess);
      start(next_seed_, end);
      next_seed_ = end;
    }
    if (workers_.empty()) break;
    std::vector<pollfd> polled;
    for (const Worker& worker : workers_) polled.push_back({worker.pipe, POLLIN, 0});
    ::poll(polled.data(), polled.size(), 3000);
    for (std::size_t i = polled.size(); i-- > 0;) {
      if (polled[i].revents != 0) take_output(workers_[i]);
      if (workers_[i].pipe < 0) retire(i);
    }
    progress();
  }
  totals_.seconds = now_seconds() - began_;
  return totals_;
}

// What the other processes still find is not counted.
void Campaign::stop() {
  if (std::exchange(stopping_, true)) return;
  for (const Worker& worker : workers_) ::kill(worker.pid, SIGKILL);
}

}  // namespace

void CampaignTotals::add(const SeedReport& report) {
  (report.passed() ? passed : failed) += 1;
  operations += report.operations;
  events += report.events;
  crashes += report.crashes;
  planted_uses += report.planted_uses;
  virtual_ns += report.virtual_ns;
  for (std::size_t i = 0; i < kFaultKinds; ++i) faults[i] += report.faults[i];
  for (const auto& [name, count] : report.probes) probes[name] += count;
}

CampaignTotals run_campaign(const WorkloadEntry& workload, const CampaignOptions& options) {
  return Campaign(workload, options).run();
}

std::uint64_t print_rare_faults(const WorkloadEntry& workload, const CampaignTotals& totals,
                                std::uint64_t count_min) {
  std::uint64_t rare = 0;
  for (std::size_t i = 0; i < kFaultKinds; ++i) {
    const auto kind = static_cast<FaultKind>(i);
    if (!workload.profile.allows(kind) || totals.faults[i] >= count_min) continue;
    ++rare;
    std::printf("sim %s: %s fired %lu times, must be %lu\n", std::string(workload.name).c_str(),
                std::string(name_of(kind)).c_str(), totals.faults[i], count_min);
  }
  return rare;
}

void print_totals(const WorkloadEntry& workload, const CampaignTotals& totals) {
  for (std::size_t i = 0; i < kFaultKinds; ++i) {
    const auto kind = static_cast<FaultKind>(i);
    if (!workload.profile.allows(kind) && totals.faults[i] == 0) continue;
    std::printf("  %-26s %12lu\n", std::string(name_of(kind)).c_str(), totals.faults[i]);
  }
  for (const auto& [name, count] : totals.probes) {
    std::printf("  probe %-35s %12lu\n", name.c_str(), count);
  }
  std::printf("  %lu operations, %lu crashes, %lu seeds run twice, %.0f s of virtual time\n",
              totals.operations, totals.crashes, totals.double_runs,
              static_cast<double>(totals.virtual_ns) * 1e-9);
  std::printf("  %lu events in %.1f s: %.2f million/s\n", totals.events, totals.seconds,
              static_cast<double>(totals.events) / std::max(totals.seconds, 1e-9) * 1e-6);
}

}  // namespace sarsen::sim
