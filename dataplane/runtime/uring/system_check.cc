#include "dataplane/runtime/uring/system_check.h"

#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>

#include <errno.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "dataplane/runtime/uring/ring_setup.h"

namespace sarsen {
namespace {

constexpr int kCapabilityIpcLock = 14;

struct RequiredOperation {
  int opcode;
  const char* name;
};
constexpr RequiredOperation kRequiredOperations[] = {
    {IORING_OP_READ, "READ"},
    {IORING_OP_WRITE, "WRITE"},
    {IORING_OP_READ_FIXED, "READ_FIXED"},
    {IORING_OP_WRITE_FIXED, "WRITE_FIXED"},
    {IORING_OP_FSYNC, "FSYNC"},
    {IORING_OP_FALLOCATE, "FALLOCATE"},
    {IORING_OP_POLL_ADD, "POLL_ADD"},
    {IORING_OP_LINK_TIMEOUT, "LINK_TIMEOUT"},
    {IORING_OP_ACCEPT, "ACCEPT"},
    {IORING_OP_CONNECT, "CONNECT"},
    {IORING_OP_RECV, "RECV"},
    {IORING_OP_SEND, "SEND"},
    {IORING_OP_SENDMSG, "SENDMSG"},
};

std::string text_of(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool seccomp_filter_active() {
  const std::string status = text_of("/proc/self/status");
  const auto at = status.find("\nSeccomp:\t");
  return at != std::string::npos && status.compare(at + 10, 1, "2") == 0;
}

bool has_ipc_lock() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  if (syscall(SYS_capget, &header, data) != 0) return false;
  return (data[0].effective & (1u << kCapabilityIpcLock)) != 0;
}

bool too_old(const SystemFacts& facts) {
  const auto version = parse_kernel_version(facts.kernel_release);
  return version && *version < kKernelVersionMin;
}

std::string kernel_wanted(const SystemFacts& facts) {
  return "this kernel is " + facts.kernel_release + ", Linux " +
         std::to_string(kKernelVersionMin.major) + "." + std::to_string(kKernelVersionMin.minor) +
         " or newer is needed";
}

std::string memlock_advice(const SystemFacts& facts) {
  return "the limit is " + std::to_string(facts.memlock_limit_bytes) +
         " bytes; raise it (ulimit -l, LimitMEMLOCK= in the systemd unit) or give the process "
         "CAP_IPC_LOCK";
}

Error explain_refusal(const SystemFacts& facts) {
  if (facts.io_uring_disabled && *facts.io_uring_disabled == 2) {
    return make_error(RuntimeError::io_uring_blocked,
                      "the sysctl kernel.io_uring_disabled is 2; set it to 0 (sysctl -w "
                      "kernel.io_uring_disabled=0)");
  }
  if (facts.io_uring_disabled && *facts.io_uring_disabled == 1 && !facts.seccomp_filter) {
    return make_error(RuntimeError::io_uring_blocked,
                      "the sysctl kernel.io_uring_disabled is 1 and this process is neither "
                      "privileged nor in the group of kernel.io_uring_group; set the sysctl to 0, "
                      "or put the process into that group");
  }
  if (facts.seccomp_filter) {
    return make_error(RuntimeError::io_uring_blocked,
                      "a seccomp filter refuses io_uring_setup; container runtimes do that by "
                      "default. Run with a profile that allows io_uring_setup, io_uring_enter and "
                      "io_uring_register (Kubernetes: securityContext.seccompProfile of type "
                      "Localhost; Docker and Podman: --security-opt seccomp=PROFILE)");
  }
  return make_error(RuntimeError::io_uring_blocked,
                    "io_uring_setup is refused though no sysctl and no seccomp filter of this "
                    "process says so; look at the security module (AppArmor, SELinux) of the host");
}

}  // namespace

std::optional<KernelVersion> parse_kernel_version(std::string_view release) {
  KernelVersion version;
  const char* const begin = release.data();
  const char* const end = begin + release.size();
  const auto major = std::from_chars(begin, end, version.major);
  if (major.ec != std::errc() || major.ptr == end || *major.ptr != '.') return std::nullopt;
  const auto minor = std::from_chars(major.ptr + 1, end, version.minor);
  if (minor.ec != std::errc()) return std::nullopt;
  return version;
}

SystemFacts read_system_facts() {
  SystemFacts facts;
  utsname name{};
  uname(&name);
  facts.kernel_release = name.release;
  const std::string disabled = text_of("/proc/sys/kernel/io_uring_disabled");
  int value = 0;
  if (std::from_chars(disabled.data(), disabled.data() + disabled.size(), value).ec ==
      std::errc()) {
    facts.io_uring_disabled = value;
  }
  facts.seccomp_filter = seccomp_filter_active();
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  facts.memlock_limit_bytes = limit.rlim_cur;
  facts.memlock_unlimited = limit.rlim_cur == RLIM_INFINITY || has_ipc_lock();
  return facts;
}

Error explain_ring_setup(int errno_value, const SystemFacts& facts) {
  switch (errno_value) {
    case EPERM:
    case EACCES: return explain_refusal(facts);
    case ENOSYS:
      if (too_old(facts)) return make_error(RuntimeError::kernel_too_old, kernel_wanted(facts));
      if (facts.seccomp_filter) return explain_refusal(facts);
      return make_error(RuntimeError::io_uring_blocked,
                        "the kernel was built without io_uring (CONFIG_IO_URING)");
    case EINVAL:
      return make_error(RuntimeError::kernel_too_old,
                        "io_uring lacks SINGLE_ISSUER or DEFER_TASKRUN; " + kernel_wanted(facts));
    case ENOMEM:
      if (!facts.memlock_unlimited) {
        return make_error(RuntimeError::memlock_too_low,
                          "no memory for the rings; " + memlock_advice(facts));
      }
      break;
    default: break;
  }
  return error_from_errno(errno_value, "io_uring_setup");
}

Error explain_buffer_registration(int errno_value, std::uint64_t bytes, const SystemFacts& facts) {
  if (errno_value == ENOMEM && !facts.memlock_unlimited) {
    return make_error(
        RuntimeError::memlock_too_low,
        "cannot lock " + std::to_string(bytes) + " bytes of I/O buffers; " + memlock_advice(facts));
  }
  return error_from_errno(errno_value,
                          "register " + std::to_string(bytes) + " bytes of I/O buffers");
}

Result<void> check_io_uring() {
  io_uring ring{};
  if (const int error = set_up_ring(ring, RingSizes{8, 16}); error != 0) {
    return fail(explain_ring_setup(error, read_system_facts()));
  }
  std::string missing;
  io_uring_probe* const probe = io_uring_get_probe_ring(&ring);
  for (const auto& operation : kRequiredOperations) {
    if (probe != nullptr && io_uring_opcode_supported(probe, operation.opcode)) continue;
    missing += missing.empty() ? "" : ", ";
    missing += operation.name;
  }
  if (probe != nullptr) io_uring_free_probe(probe);
  io_uring_queue_exit(&ring);
  if (missing.empty()) return {};
  return fail(make_error(
      RuntimeError::kernel_too_old,
      "io_uring lacks the operations " + missing + "; " + kernel_wanted(read_system_facts())));
}

}  // namespace sarsen
