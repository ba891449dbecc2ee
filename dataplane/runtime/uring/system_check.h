// Why io_uring does not work here, said so that a person can repair it.
//
// Called once at start-up, from any thread. The explain_* functions are pure: they turn facts into
// one error that names the cause and what to change.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "dataplane/base/result.h"
#include "dataplane/runtime/error.h"

namespace sarsen {

struct KernelVersion {
  unsigned major = 0;
  unsigned minor = 0;
  constexpr auto operator<=>(const KernelVersion&) const = default;
};

// The oldest kernel with IORING_SETUP_DEFER_TASKRUN.
inline constexpr KernelVersion kKernelVersionMin{6, 1};

// "6.1.0-18-amd64" gives {6, 1}; nothing for text that is not a release.
std::optional<KernelVersion> parse_kernel_version(std::string_view release);

// What the running system says about itself.
struct SystemFacts {
  std::string kernel_release;             // uname -r
  std::optional<int> io_uring_disabled;   // the sysctl (0, 1, 2); absent before Linux 6.6
  bool seccomp_filter = false;            // this process runs under a seccomp filter
  std::uint64_t memlock_limit_bytes = 0;  // RLIMIT_MEMLOCK, soft
  bool memlock_unlimited = false;         // no limit, or CAP_IPC_LOCK
};
SystemFacts read_system_facts();

// For a failed io_uring_setup. Codes: io_uring_blocked, kernel_too_old, memlock_too_low, or the
// errno.
Error explain_ring_setup(int errno_value, const SystemFacts& facts);
// For a failed registration of `bytes` of buffers. Codes: memlock_too_low, or the errno.
Error explain_buffer_registration(int errno_value, std::uint64_t bytes, const SystemFacts& facts);

// Makes a ring as the reactor does, asks it for every opcode the runtime uses, and closes it.
// Errors: those of explain_ring_setup; kernel_too_old naming the missing operations.
Result<void> check_io_uring();

}  // namespace sarsen
