#include "dataplane/runtime/uring/thread_options.h"

#include <array>

#include <errno.h>
#include <linux/mempolicy.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace sarsen {
namespace {

constexpr unsigned kNumaNodesMax = 1024;
constexpr unsigned kBitsPerWord = 64;

class NodeMask {
 public:
  explicit NodeMask(unsigned node) { words_[node / kBitsPerWord] |= 1ul << (node % kBitsPerWord); }
  const unsigned long* words() const { return words_.data(); }
  // The kernel reads one bit less than it is told.
  static constexpr unsigned long bits() { return kNumaNodesMax + 1; }

 private:
  std::array<unsigned long, kNumaNodesMax / kBitsPerWord> words_{};
};

Result<void> check_node(unsigned node) {
  if (node < kNumaNodesMax) return {};
  return fail(make_error(RuntimeError::bad_argument, "NUMA node " + std::to_string(node)));
}

Result<void> pin(unsigned cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (cpu >= CPU_SETSIZE) {
    return fail(make_error(RuntimeError::bad_argument, "CPU " + std::to_string(cpu)));
  }
  CPU_SET(cpu, &set);
  if (const int error = pthread_setaffinity_np(pthread_self(), sizeof(set), &set); error != 0) {
    return fail(error_from_errno(error, "pin a shard to CPU " + std::to_string(cpu) +
                                            " (it must be in the cpuset of this process)"));
  }
  return {};
}

Result<void> set_scheduling(SchedulingPolicy policy, int priority) {
  const int number = policy == SchedulingPolicy::fifo ? SCHED_FIFO : SCHED_RR;
  sched_param parameters{};
  parameters.sched_priority = priority;
  if (const int error = pthread_setschedparam(pthread_self(), number, &parameters); error != 0) {
    return fail(
        error_from_errno(error, "real-time priority " + std::to_string(priority) +
                                    " for a shard (1 to 99; needs CAP_SYS_NICE or RLIMIT_RTPRIO)"));
  }
  return {};
}

}  // namespace

Result<void> apply_thread_options(const ThreadOptions& options) {
  pthread_setname_np(pthread_self(), options.name.substr(0, 15).c_str());
  if (options.cpu) SARSEN_TRY(pin(*options.cpu));
  if (options.scheduling != SchedulingPolicy::other) {
    SARSEN_TRY(set_scheduling(options.scheduling, options.realtime_priority));
  }
  if (options.numa_node) {
    SARSEN_TRY(check_node(*options.numa_node));
    const NodeMask mask(*options.numa_node);
    if (syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask.words(), NodeMask::bits()) != 0) {
      return fail(error_from_errno(
          errno, "prefer memory of NUMA node " + std::to_string(*options.numa_node)));
    }
  }
  return {};
}

Result<void> prefer_numa_node(void* data, std::size_t bytes, unsigned node) {
  SARSEN_TRY(check_node(node));
  const NodeMask mask(node);
  if (syscall(SYS_mbind, data, bytes, MPOL_PREFERRED, mask.words(), NodeMask::bits(), 0) != 0) {
    return fail(error_from_errno(errno, "bind buffers to NUMA node " + std::to_string(node)));
  }
  return {};
}

}  // namespace sarsen
