#include "dataplane/blockd/fuse/loop_helper.h"

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <sstream>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dataplane/keeper/descriptor.h"
#include "dataplane/runtime/error.h"

namespace sarsen::fuse {
namespace {

using keeper::Descriptor;

// The helper's descriptor of the mount.
constexpr int kMountInHelper = 3;

struct Output {
  std::string text;
  bool complete = false;
};

// Until the helper closes its end, which it does by ending, or until `deadline`.
Output read_all(int pipe, std::chrono::steady_clock::time_point deadline) {
  Output output;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd polled{pipe, POLLIN, 0};
    if (left.count() <= 0 || ::poll(&polled, 1, static_cast<int>(left.count())) <= 0) return output;
    char piece[512];
    const ssize_t received = ::read(pipe, piece, sizeof(piece));
    if (received <= 0) {
      output.complete = true;
      return output;
    }
    output.text.append(piece, static_cast<std::size_t>(received));
  }
}

std::vector<char*> pointers(const std::vector<std::string>& arguments) {
  std::vector<char*> pointers;
  for (const std::string& argument : arguments) {
    pointers.push_back(const_cast<char*>(argument.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> identity(std::uint32_t number, const LoopBacking& backing) {
  return {std::to_string(number), std::to_string(backing.device), std::to_string(backing.inode)};
}

}  // namespace

LoopHelper LoopHelper::beside_this_program() {
  std::error_code ignored;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", ignored);
  return LoopHelper((self.parent_path() / "sarsen-loop").string());
}

Result<std::string> LoopHelper::run(const std::vector<std::string>& arguments, int mount) const {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail(error_from_errno(errno, "pipe"));
  const Descriptor ours(ends[0]);
  Descriptor its(ends[1]);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, its.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, its.get(), STDERR_FILENO);
  if (mount >= 0) posix_spawn_file_actions_adddup2(&actions, mount, kMountInHelper);
  // Threads of the pool have all signals blocked, which the helper would inherit.
  sigset_t no_signals;
  sigemptyset(&no_signals);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &no_signals);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  std::vector<std::string> all{program_};
  all.insert(all.end(), arguments.begin(), arguments.end());
  char* no_environment[] = {nullptr};
  pid_t child = -1;
  const int error = ::posix_spawn(&child, program_.c_str(), &actions, &attributes,
                                  pointers(all).data(), no_environment);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return fail(error_from_errno(error, "start " + program_));
  its.reset();

  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kTimeoutMs);
  const Output output = read_all(ours.get(), deadline);
  if (!output.complete) {
    // It cannot be waited for: while the server does not answer, nothing ends it.
    ::kill(child, SIGKILL);
    return fail(make_error(RuntimeError::timed_out, "sarsen-loop " + arguments.front()));
  }
  int status = -1;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return output.text;
  return fail(
      make_error(RuntimeError::system, "sarsen-loop " + arguments.front() + ": " + output.text));
}

Result<LoopDevice> LoopHelper::attach(int mount, const std::string& file_name,
                                      const LoopOptions& options) const {
  const auto printed = run({"attach", file_name, std::to_string(options.sector_bytes),
                            options.read_only ? "ro" : "rw", options.label},
                           mount);
  if (!printed) return fail(printed.error());
  std::istringstream words(*printed);
  LoopDevice device;
  words >> device.number >> device.backing.device >> device.backing.inode >> device.direct_io;
  if (!words) return fail(make_error(RuntimeError::system, "sarsen-loop printed: " + *printed));
  return device;
}

Result<void> LoopHelper::detach(std::uint32_t number, const LoopBacking& backing) const {
  std::vector<std::string> arguments = identity(number, backing);
  arguments.insert(arguments.begin(), "detach");
  SARSEN_TRY(run(arguments, -1));
  return {};
}

Result<void> LoopHelper::resize(int mount, const std::string& file_name, std::uint32_t number,
                                const LoopBacking& backing) const {
  std::vector<std::string> arguments = identity(number, backing);
  arguments.insert(arguments.begin(), {"resize", file_name});
  SARSEN_TRY(run(arguments, mount));
  return {};
}

Result<std::uint32_t> LoopHelper::sweep(const std::string& prefix,
                                        const std::vector<std::uint32_t>& keep) const {
  std::vector<std::string> arguments{"sweep", prefix};
  for (const std::uint32_t number : keep) arguments.push_back(std::to_string(number));
  const auto printed = run(arguments, -1);
  if (!printed) return fail(printed.error());
  return static_cast<std::uint32_t>(std::strtoul(printed->c_str(), nullptr, 10));
}

}  // namespace sarsen::fuse
