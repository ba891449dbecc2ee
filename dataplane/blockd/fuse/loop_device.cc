#include "dataplane/blockd/fuse/loop_device.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <string_view>

#include <dirent.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataplane/keeper/descriptor.h"
#include "dataplane/runtime/error.h"

namespace sarsen::fuse {
namespace {

using keeper::Descriptor;

// Others may take the device that the kernel called free, between the two calls.
constexpr int kAttemptsMax = 32;

std::string sysfs_path(std::uint32_t number, const char* attribute) {
  return "/sys/block/loop" + std::to_string(number) + "/" + attribute;
}

// Read from sysfs, because asking the device asks the server of its file.
bool is_bound(std::uint32_t number) {
  return ::access(sysfs_path(number, "loop/backing_file").c_str(), F_OK) == 0;
}

std::string path_of(std::uint32_t number) {
  return "/dev/loop" + std::to_string(number);
}

Result<Descriptor> open_loop(std::uint32_t number, int flags) {
  const std::string path = path_of(number);
  Descriptor device(::open(path.c_str(), flags | O_CLOEXEC));
  if (!device) return fail(error_from_errno(errno, "open " + path));
  return device;
}

Result<LoopDevice> status_of(std::uint32_t number, const Descriptor& device) {
  loop_info64 info{};
  if (::ioctl(device.get(), LOOP_GET_STATUS64, &info) != 0) {
    if (errno == ENXIO) return fail(make_error(RuntimeError::not_found, "loop device not bound"));
    return fail(error_from_errno(errno, "LOOP_GET_STATUS64"));
  }
  const auto* label = reinterpret_cast<const char*>(info.lo_file_name);
  return LoopDevice{number,
                    {info.lo_device, info.lo_inode},
                    (info.lo_flags & LO_FLAGS_DIRECT_IO) != 0,
                    std::string(label, ::strnlen(label, LO_NAME_SIZE))};
}

// Opened, and checked to be ours: between two looks the number may have gone to somebody else.
Result<Descriptor> open_bound(std::uint32_t number, const LoopBacking& backing) {
  auto device = open_loop(number, O_RDWR);
  if (!device) return device;
  const auto status = status_of(number, *device);
  if (!status) return fail(status.error());
  if (status->backing != backing) {
    return fail(make_error(RuntimeError::not_found, status->path() + " belongs to another file"));
  }
  return device;
}

// No flushes are sent to a device without a volatile cache. Without sysfs they are, and cost a
// little.
void declare_write_through(std::uint32_t number) {
  const Descriptor file(
      ::open(sysfs_path(number, "queue/write_cache").c_str(), O_WRONLY | O_CLOEXEC));
  constexpr std::string_view kText = "write through";
  if (file) [[maybe_unused]]
    const ssize_t written = ::write(file.get(), kText.data(), kText.size());
}

Result<std::vector<LoopDevice>> bound_loops() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/sys/block"), ::closedir);
  if (!folder) return fail(error_from_errno(errno, "/sys/block"));
  std::vector<LoopDevice> devices;
  constexpr std::string_view kPrefix = "loop";
  while (const dirent* item = ::readdir(folder.get())) {
    std::string_view name(item->d_name);
    if (!name.starts_with(kPrefix)) continue;
    name.remove_prefix(kPrefix.size());
    std::uint32_t number = 0;
    if (std::from_chars(name.begin(), name.end(), number).ptr != name.end()) continue;
    if (auto device = inspect_loop(number)) devices.push_back(std::move(*device));
  }
  return devices;
}

loop_config configuration(int file, const LoopOptions& options) {
  loop_config config{};
  config.fd = static_cast<std::uint32_t>(file);
  config.block_size = options.sector_bytes;
  config.info.lo_flags = LO_FLAGS_DIRECT_IO | (options.read_only ? LO_FLAGS_READ_ONLY : 0u);
  const std::size_t length = std::min<std::size_t>(options.label.size(), LO_NAME_SIZE - 1);
  std::memcpy(config.info.lo_file_name, options.label.data(), length);
  return config;
}

}  // namespace

Result<LoopDevice> attach_loop(int file, const LoopOptions& options) {
  const Descriptor control(::open("/dev/loop-control", O_RDWR | O_CLOEXEC));
  if (!control) return fail(error_from_errno(errno, "open /dev/loop-control"));
  const loop_config config = configuration(file, options);
  for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
    const int free = ::ioctl(control.get(), LOOP_CTL_GET_FREE);
    if (free < 0) return fail(error_from_errno(errno, "LOOP_CTL_GET_FREE"));
    const auto number = static_cast<std::uint32_t>(free);
    const auto device = open_loop(number, O_RDWR);
    if (!device) return fail(device.error());
    if (::ioctl(device->get(), LOOP_CONFIGURE, &config) == 0) {
      declare_write_through(number);
      return status_of(number, *device);
    }
    if (errno != EBUSY) return fail(error_from_errno(errno, "LOOP_CONFIGURE"));
  }
  return fail(
      make_error(RuntimeError::overloaded, "loop devices are taken as fast as they appear"));
}

Result<LoopDevice> inspect_loop(std::uint32_t number) {
  if (!is_bound(number)) return fail(make_error(RuntimeError::not_found, "loop device not bound"));
  const auto device = open_loop(number, O_RDONLY);
  if (!device) return fail(device.error());
  return status_of(number, *device);
}

Result<LoopDevice> find_loop(const LoopBacking& backing) {
  const auto all = bound_loops();
  if (!all) return fail(all.error());
  for (const LoopDevice& device : *all) {
    if (device.backing == backing) return device;
  }
  return fail(make_error(RuntimeError::not_found, "no loop device is bound to the file"));
}

Result<std::vector<LoopDevice>> find_labelled_loops(const std::string& prefix) {
  auto all = bound_loops();
  if (all)
    std::erase_if(*all, [&](const LoopDevice& each) { return !each.label.starts_with(prefix); });
  return all;
}

std::uint64_t loop_size_bytes(std::uint32_t number) {
  constexpr std::uint64_t kSysfsSectorBytes = 512;
  const Descriptor file(::open(sysfs_path(number, "size").c_str(), O_RDONLY | O_CLOEXEC));
  char text[32] = {};
  const ssize_t count = file ? ::read(file.get(), text, sizeof(text)) : 0;
  std::uint64_t sectors = 0;
  if (count > 0) std::from_chars(text, text + count, sectors);
  return sectors * kSysfsSectorBytes;
}

Result<void> detach_loop(std::uint32_t number, const LoopBacking& backing) {
  {
    const auto device = open_bound(number, backing);
    if (!device) return fail(device.error());
    // A mounted device is left as it is: LOOP_CLR_FD would free it at its last close.
    const auto alone = open_loop(number, O_RDONLY | O_EXCL);
    if (!alone && is(alone.error(), RuntimeError::overloaded)) {
      return fail(make_error(RuntimeError::overloaded, path_of(number) + " is still open"));
    }
  }
  {
    const auto device = open_bound(number, backing);
    if (!device) return fail(device.error());
    if (::ioctl(device->get(), LOOP_CLR_FD) != 0 && errno != ENXIO) {
      return fail(error_from_errno(errno, "LOOP_CLR_FD"));
    }
  }
  // Our close was the last one, and freed it, unless somebody else has it open.
  const auto now = inspect_loop(number);
  if (!now || now->backing != backing) return {};
  return fail(make_error(RuntimeError::overloaded, now->path() + " is still open"));
}

Result<void> resize_loop(std::uint32_t number, const LoopBacking& backing) {
  const auto device = open_bound(number, backing);
  if (!device) return fail(device.error());
  if (::ioctl(device->get(), LOOP_SET_CAPACITY, 0) != 0) {
    return fail(error_from_errno(errno, "LOOP_SET_CAPACITY"));
  }
  return {};
}

}  // namespace sarsen::fuse
