#include "dataplane/runtime/uring/system_check.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "tests/unit/runtime/uring/uring_testing.h"

namespace sarsen {
namespace {

SystemFacts healthy() {
  SystemFacts facts;
  facts.kernel_release = "6.8.0-45-generic";
  facts.io_uring_disabled = 0;
  facts.memlock_limit_bytes = 8 * kMiB;
  return facts;
}

bool says(const Error& error, std::string_view text) {
  return error.message().find(text) != std::string::npos;
}

// Releases look different on every distribution.
TEST(KernelVersion, is_read_from_the_release_of_any_distribution) {
  EXPECT_EQ(parse_kernel_version("6.1.0-18-amd64"), (KernelVersion{6, 1}));
  EXPECT_EQ(parse_kernel_version("5.15.167.4-microsoft-standard-WSL2"), (KernelVersion{5, 15}));
  EXPECT_EQ(parse_kernel_version("7.0-rc1"), (KernelVersion{7, 0}));
  EXPECT_EQ(parse_kernel_version("6"), std::nullopt);
  EXPECT_EQ(parse_kernel_version("linux"), std::nullopt);
  EXPECT_EQ(parse_kernel_version(""), std::nullopt);
  EXPECT_LT((KernelVersion{5, 19}), kKernelVersionMin);
  EXPECT_LT((KernelVersion{6, 1}), (KernelVersion{6, 10}));
}

// Each cause asks for another repair: one error that fits all would help nobody.
TEST(SystemCheck, a_refused_ring_names_the_sysctl_the_filter_or_the_security_module) {
  SystemFacts facts = healthy();
  facts.io_uring_disabled = 2;
  EXPECT_TRUE(says(explain_ring_setup(EPERM, facts), "kernel.io_uring_disabled is 2; set it to 0"));
  facts.io_uring_disabled = 1;
  EXPECT_TRUE(says(explain_ring_setup(EPERM, facts), "kernel.io_uring_group"));
  facts.io_uring_disabled = 0;
  facts.seccomp_filter = true;
  EXPECT_TRUE(says(explain_ring_setup(EPERM, facts), "seccompProfile"));
  EXPECT_TRUE(says(explain_ring_setup(ENOSYS, facts), "seccompProfile"));
  facts.seccomp_filter = false;
  EXPECT_TRUE(says(explain_ring_setup(EPERM, facts), "AppArmor, SELinux"));
  EXPECT_TRUE(says(explain_ring_setup(ENOSYS, facts), "CONFIG_IO_URING"));
}

TEST(SystemCheck, an_old_kernel_is_told_which_version_is_needed) {
  SystemFacts facts = healthy();
  facts.kernel_release = "5.4.0-generic";
  for (const int error : {EINVAL, ENOSYS}) {
    const Error explained = explain_ring_setup(error, facts);
    EXPECT_TRUE(is(explained, RuntimeError::kernel_too_old)) << explained.message();
    EXPECT_TRUE(says(explained, "this kernel is 5.4.0-generic, Linux 6.1 or newer is needed"));
  }
}

TEST(SystemCheck, a_memlock_limit_is_named_with_its_value_and_what_is_needed) {
  SystemFacts facts = healthy();
  const Error explained = explain_buffer_registration(ENOMEM, 64 * kMiB, facts);
  EXPECT_TRUE(is(explained, RuntimeError::memlock_too_low));
  EXPECT_TRUE(says(explained, "67108864")) << explained.message();
  EXPECT_TRUE(says(explained, "8388608"));
  EXPECT_TRUE(says(explained, "CAP_IPC_LOCK"));
  facts.memlock_unlimited = true;  // then memory itself is short
  EXPECT_TRUE(is(explain_buffer_registration(ENOMEM, kMiB, facts), RuntimeError::out_of_memory));
}

// The machine that runs the tests can run Sarsen.
TEST(SystemCheck, finds_nothing_wrong_here) {
  const auto checked = check_io_uring();
  EXPECT_TRUE(checked) << checked.error().message();
}

// Makes io_uring_setup answer `error`, as the default profile of container runtimes does.
bool refuse_io_uring(unsigned error) {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program{sizeof(filter) / sizeof(filter[0]), filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Containers: the most frequent reason why a first start fails.
TEST(SystemCheck, a_seccomp_filter_is_recognised_in_the_process_it_blocks) {
  for (const unsigned error : {unsigned{EPERM}, unsigned{ENOSYS}}) {
    expect_in_child([&]() -> std::string {
      if (!refuse_io_uring(error)) return "no filter could be installed";
      const auto checked = check_io_uring();
      if (checked) return "io_uring still works";
      if (!is(checked.error(), RuntimeError::io_uring_blocked)) return checked.error().message();
      if (!says(checked.error(), "seccomp filter")) return checked.error().message();
      const auto reactor = Reactor::create({});
      if (reactor || !says(reactor.error(), "seccomp filter")) return "the reactor does not say so";
      return "";
    });
  }
}

void drop_all_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2]{};
  syscall(SYS_capset, &header, none);
}

// Buffers are locked memory; systemd's and Docker's default limit is a few MiB at most.
TEST(SystemCheck, a_low_memlock_limit_is_recognised_in_the_process_it_binds) {
  expect_in_child([]() -> std::string {
    const rlimit limit{512 * kKiB, 512 * kKiB};
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0) return "the limit could not be lowered";
    drop_all_capabilities();
    const auto reactor = Reactor::create({});
    if (!reactor) return reactor.error().message();
    const auto arena = BufferArena::create({.bytes = kMiB}, **reactor);
    if (arena) return "1 MiB was locked under a limit of 512 KiB";
    if (!is(arena.error(), RuntimeError::memlock_too_low)) return arena.error().message();
    return says(arena.error(), "the limit is 524288 bytes") ? "" : arena.error().message();
  });
}

}  // namespace
}  // namespace sarsen
