#include "dataplane/blockd/fuse/server_process.h"

#include <cerrno>
#include <chrono>
#include <thread>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "dataplane/runtime/error.h"

namespace sarsen::fuse {
namespace {

// A predecessor that was killed is gone within milliseconds; one that ends by itself takes its
// time.
constexpr std::chrono::milliseconds kLockRetry(5);

}  // namespace

Result<void> become_block_server() {
  // What exists now is made resident; what comes later when it is first used, so that the unused
  // parts of stacks and arenas stay free.
  if (::mlockall(MCL_CURRENT) != 0 || ::mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) != 0) {
    return fail(make_error(RuntimeError::memlock_too_low,
                           "mlockall: raise RLIMIT_MEMLOCK or give CAP_IPC_LOCK"));
  }
  if (::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) != 0) {
    return fail(error_from_errno(errno, "PR_SET_IO_FLUSHER (needs CAP_SYS_RESOURCE)"));
  }
  return {};
}

Result<ServerLock> ServerLock::acquire(const std::string& path, int wait_ms) {
  keeper::Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file) return fail(error_from_errno(errno, "open " + path));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(wait_ms);
  while (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return fail(error_from_errno(errno, "lock " + path));
    if (std::chrono::steady_clock::now() >= deadline) {
      return fail(make_error(RuntimeError::overloaded, "another server holds " + path));
    }
    std::this_thread::sleep_for(kLockRetry);
  }
  return ServerLock(std::move(file));
}

}  // namespace sarsen::fuse
