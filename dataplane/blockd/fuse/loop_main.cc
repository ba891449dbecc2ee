// sarsen-loop: one step on a loop device, in a process that holds nothing else. See loop_helper.h,
// whose arguments and output these are. Descriptor 3 is the mount.
//
//   attach FILE SECTOR_BYTES ro|rw LABEL      prints: NUMBER DEVICE INODE DIRECT_IO
//   detach NUMBER DEVICE INODE
//   resize FILE NUMBER DEVICE INODE
//   sweep PREFIX [NUMBER TO KEEP]...          prints how many were detached

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataplane/blockd/fuse/loop_device.h"
#include "dataplane/keeper/descriptor.h"
#include "dataplane/runtime/error.h"

namespace sarsen::fuse {
namespace {

constexpr int kMount = 3;
// For programs that look at a new device and go (udev, blkid) to close it again.
constexpr int kDetachAttempts = 100;
constexpr useconds_t kDetachPauseUs = 50'000;

int failed(const Error& error) {
  std::printf("%s\n", error.message().c_str());
  return 1;
}

std::uint64_t number_of(const std::string& text) {
  return std::strtoull(text.c_str(), nullptr, 10);
}

int attach(const std::vector<std::string>& words) {
  LoopOptions options;
  options.sector_bytes = static_cast<std::uint32_t>(number_of(words[1]));
  options.read_only = words[2] == "ro";
  options.label = words[3];
  const int mode = options.read_only ? O_RDONLY : O_RDWR;
  const keeper::Descriptor file(::openat(kMount, words[0].c_str(), mode | O_DIRECT | O_CLOEXEC));
  if (!file) return failed(error_from_errno(errno, "open the served file"));
  const auto device = attach_loop(file.get(), options);
  if (!device) return failed(device.error());
  std::printf("%u %llu %llu %d\n", device->number,
              static_cast<unsigned long long>(device->backing.device),
              static_cast<unsigned long long>(device->backing.inode), device->direct_io ? 1 : 0);
  return 0;
}

int detach(const std::vector<std::string>& words) {
  const auto number = static_cast<std::uint32_t>(number_of(words[0]));
  const LoopBacking backing{number_of(words[1]), number_of(words[2])};
  for (int attempt = 1;; ++attempt) {
    const auto outcome = detach_loop(number, backing);
    if (outcome || is(outcome.error(), RuntimeError::not_found)) return 0;
    if (!outcome.error().retryable() || attempt == kDetachAttempts) return failed(outcome.error());
    ::usleep(kDetachPauseUs);
  }
}

int resize(const std::vector<std::string>& words) {
  // The kernel asks the server for the size now, so that the loop driver finds the new one.
  struct statx status{};
  if (::statx(kMount, words[0].c_str(), AT_STATX_FORCE_SYNC, STATX_SIZE, &status) != 0) {
    return failed(error_from_errno(errno, "statx of the served file"));
  }
  const auto outcome = resize_loop(static_cast<std::uint32_t>(number_of(words[1])),
                                   {number_of(words[2]), number_of(words[3])});
  return outcome ? 0 : failed(outcome.error());
}

int sweep(const std::vector<std::string>& words) {
  std::set<std::uint32_t> keep;
  for (std::size_t i = 1; i < words.size(); ++i) {
    keep.insert(static_cast<std::uint32_t>(number_of(words[i])));
  }
  const auto devices = find_labelled_loops(words[0]);
  if (!devices) return failed(devices.error());
  unsigned count = 0;
  for (const LoopDevice& device : *devices) {
    if (!keep.contains(device.number) && detach_loop(device.number, device.backing)) ++count;
  }
  std::printf("%u\n", count);
  return 0;
}

int run(const std::string& verb, const std::vector<std::string>& words) {
  if (verb == "attach" && words.size() == 4) return attach(words);
  if (verb == "detach" && words.size() == 3) return detach(words);
  if (verb == "resize" && words.size() == 4) return resize(words);
  if (verb == "sweep" && !words.empty()) return sweep(words);
  std::fprintf(stderr, "sarsen-loop is run by sarsen-blockd\n");
  return 2;
}

}  // namespace
}  // namespace sarsen::fuse

int main(int argc, char** argv) {
  // Without its server there is nobody to tell what was done; the next server sweeps.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const std::vector<std::string> words(argv + std::min(argc, 2), argv + argc);
  return sarsen::fuse::run(argc > 1 ? argv[1] : "", words);
}
