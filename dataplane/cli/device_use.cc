#include "dataplane/cli/device_use.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <errno.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "dataplane/runtime/error.h"

namespace sarsen {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Spaces and tabs in paths are written as octal escapes in /proc.
std::string unescape(const std::string& text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      plain += static_cast<char>(std::stoi(text.substr(i + 1, 3), nullptr, 8));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

bool same_device(const std::string& path, dev_t device) {
  struct stat status{};
  return stat(path.c_str(), &status) == 0 && S_ISBLK(status.st_mode) && status.st_rdev == device;
}

bool same_file(const std::string& path, const struct stat& file) {
  struct stat status{};
  return stat(path.c_str(), &status) == 0 && status.st_dev == file.st_dev &&
         status.st_ino == file.st_ino;
}

void look_at_partitions(const fs::path& sysfs, DeviceUse& use) {
  std::error_code ignored;
  if (fs::exists(sysfs / "partition", ignored)) {
    use.reasons.push_back(fmt::format("is partition {} of a larger device; give a whole device",
                                      first_line(sysfs / "partition")));
  }
  for (const auto& entry : fs::directory_iterator(sysfs, ignored)) {
    if (fs::exists(entry.path() / "partition", ignored)) {
      use.reasons.push_back(
          fmt::format("has a partition, /dev/{}", entry.path().filename().string()));
    }
  }
  for (const auto& entry : fs::directory_iterator(sysfs / "holders", ignored)) {
    use.reasons.push_back(fmt::format("is held by /dev/{} (device mapper, RAID or similar)",
                                      entry.path().filename().string()));
  }
}

void look_at_mounts(dev_t device, DeviceUse& use) {
  std::ifstream mounts("/proc/self/mountinfo");
  const std::string number = fmt::format("{}:{}", major(device), minor(device));
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string id, parent, numbers, root, target, word, type, source;
    words >> id >> parent >> numbers >> root >> target;
    while (words >> word && word != "-") continue;
    words >> type >> source;
    if (numbers == number || same_device(unescape(source), device)) {
      use.reasons.push_back(fmt::format("is mounted on {} ({})", unescape(target), type));
    }
  }
}

void look_at_swaps(const struct stat& status, DeviceUse& use) {
  std::ifstream swaps("/proc/swaps");
  std::string line;
  std::getline(swaps, line);  // column names
  while (std::getline(swaps, line)) {
    const std::string path = unescape(line.substr(0, line.find_first_of(" \t")));
    const bool same =
        S_ISBLK(status.st_mode) ? same_device(path, status.st_rdev) : same_file(path, status);
    if (same) use.reasons.push_back("is swap space in use; swapoff it first");
  }
}

void look_at_loops(const struct stat& status, DeviceUse& use) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/sys/block", ignored)) {
    const fs::path backing = entry.path() / "loop" / "backing_file";
    if (!fs::exists(backing, ignored)) continue;
    if (same_file(first_line(backing), status)) {
      use.reasons.push_back(
          fmt::format("is the file behind /dev/{}", entry.path().filename().string()));
    }
  }
}

}  // namespace

Result<DeviceUse> look_at_use(const std::string& path) {
  struct stat status{};
  if (stat(path.c_str(), &status) != 0) return fail(error_from_errno(errno, "look at " + path));
  if (!S_ISBLK(status.st_mode) && !S_ISREG(status.st_mode)) {
    return fail(make_error(RuntimeError::bad_argument,
                           path + ": neither a block device nor a regular file"));
  }
  DeviceUse use;
  use.path = path;
  use.block_device = S_ISBLK(status.st_mode);
  std::error_code ignored;
  use.resolved_path = fs::canonical(path, ignored).string();
  if (use.block_device) {
    look_at_partitions(
        fmt::format("/sys/dev/block/{}:{}", major(status.st_rdev), minor(status.st_rdev)), use);
    look_at_mounts(status.st_rdev, use);
  } else {
    if (status.st_nlink > 1) {
      use.reasons.push_back(
          fmt::format("has {} hard links, so another name holds this data too", status.st_nlink));
    }
    look_at_loops(status, use);
  }
  look_at_swaps(status, use);
  return use;
}

}  // namespace sarsen
