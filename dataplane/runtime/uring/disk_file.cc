#include "dataplane/runtime/uring/disk_file.h"

#include <fstream>

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "dataplane/runtime/uring/posix_blocking_disk.h"
#include "dataplane/runtime/uring/uring_disk.h"

namespace sarsen {
namespace {

int access_flags(OpenMode mode) {
  return mode == OpenMode::exclusive ? O_RDWR : O_RDONLY;
}

// A file of the device's queue directory in sysfs; a partition has it one level up. Empty if
// absent.
std::string queue_attribute(dev_t device, const char* name) {
  const std::string base =
      "/sys/dev/block/" + std::to_string(major(device)) + ":" + std::to_string(minor(device));
  std::string text;
  for (const char* level : {"/queue/", "/../queue/"}) {
    std::ifstream file(base + level + name);
    if (std::getline(file, text)) return text;
  }
  return {};
}

Error explain_open(int errno_value, const std::string& path) {
  if (errno_value == EINVAL) {
    return make_error(RuntimeError::bad_argument,
                      path +
                          ": the file system does not support direct I/O (O_DIRECT); use a "
                          "block device, or a file on ext4 or xfs");
  }
  if (errno_value == EBUSY) {
    return make_error(RuntimeError::overloaded,
                      path +
                          ": the device is in use (a mount, a volume group, or another process "
                          "holds it); see lsblk and /sys/block/*/holders");
  }
  return error_from_errno(errno_value, "open " + path);
}

}  // namespace

Result<std::shared_ptr<DiskFile>> DiskFile::open(std::string path, OpenMode mode) {
  std::shared_ptr<DiskFile> file(new DiskFile);
  file->info_.name = path;
  file->mode_ = mode;

  struct stat status{};
  if (stat(path.c_str(), &status) != 0) return fail(error_from_errno(errno, "open " + path));
  file->block_device_ = S_ISBLK(status.st_mode);
  if (!file->block_device_ && !S_ISREG(status.st_mode)) {
    return fail(make_error(RuntimeError::bad_argument,
                           path + ": neither a block device nor a regular file"));
  }
  // Without O_CREAT, O_EXCL has a meaning for block devices alone: the claim.
  const int exclusive = file->block_device_ && mode == OpenMode::exclusive ? O_EXCL : 0;
  file->descriptor_ =
      ::open(path.c_str(), access_flags(mode) | O_DIRECT | O_CLOEXEC | O_NOCTTY | exclusive);
  if (file->descriptor_ < 0) return fail(explain_open(errno, path));
  if (mode == OpenMode::exclusive && !file->block_device_) SARSEN_TRY(file->claim_file());
  SARSEN_TRY(file->describe());
  SARSEN_TRY(file->check_direct_io());
  return file;
}

DiskFile::~DiskFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

Result<void> DiskFile::claim_file() {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (fcntl(descriptor_, F_OFD_SETLK, &lock) == 0) return {};
  if (errno == EAGAIN || errno == EACCES) {
    return fail(make_error(RuntimeError::overloaded,
                           info_.name + ": another process has this store open; see lslocks"));
  }
  return fail(error_from_errno(errno, "lock " + info_.name));
}

Result<void> DiskFile::describe() {
  struct stat status{};
  if (fstat(descriptor_, &status) != 0) return fail(error_from_errno(errno, "stat " + info_.name));
  std::uint64_t bytes = static_cast<std::uint64_t>(status.st_size);
  if (block_device_) {
    if (ioctl(descriptor_, BLKGETSIZE64, &bytes) != 0) {
      return fail(error_from_errno(errno, "ask " + info_.name + " for its size"));
    }
    info_.volatile_cache = queue_attribute(status.st_rdev, "write_cache") != "write through";
    info_.rotational = queue_attribute(status.st_rdev, "rotational") == "1";
    const std::string discard = queue_attribute(status.st_rdev, "discard_max_bytes");
    info_.can_discard = !discard.empty() && discard != "0";
  } else {
    info_.volatile_cache = true;  // the file system has metadata to make durable, whatever is below
    info_.can_discard = true;
  }
  info_.size_bytes = round_down(bytes, kBlockBytes);
  if (info_.size_bytes == 0) {
    return fail(make_error(RuntimeError::bad_argument,
                           info_.name + ": " + std::to_string(bytes) + " bytes long, a block of " +
                               std::to_string(kBlockBytes) + " does not fit"));
  }
  return {};
}

Result<void> DiskFile::check_direct_io() const {
  struct statx status{};
  if (statx(descriptor_, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) != 0 ||
      (status.stx_mask & STATX_DIOALIGN) == 0) {
    return {};  // not told; a first transfer will tell
  }
  if (status.stx_dio_offset_align == 0) return fail(explain_open(EINVAL, info_.name));
  if (status.stx_dio_offset_align <= kBlockBytes && status.stx_dio_mem_align <= kBlockBytes) {
    return {};
  }
  return fail(make_error(RuntimeError::bad_argument,
                         info_.name + ": direct I/O needs an alignment of " +
                             std::to_string(status.stx_dio_offset_align) + " bytes, at most " +
                             std::to_string(kBlockBytes) + " are supported"));
}

Result<int> DiskFile::reopen() const {
  // Through /proc, so that it is this file even if the path now names another.
  const std::string same = "/proc/self/fd/" + std::to_string(descriptor_);
  const int opened = ::open(same.c_str(), access_flags(mode_) | O_DIRECT | O_CLOEXEC | O_NOCTTY);
  if (opened >= 0) return opened;
  return fail(error_from_errno(errno, "open " + info_.name + " again as " + same));
}

Result<std::unique_ptr<Disk>> open_disk(std::shared_ptr<DiskFile> file, Reactor& reactor) {
  const auto descriptor = file->reopen();
  if (!descriptor) return fail(descriptor.error());
  return std::make_unique<UringDisk>(std::move(file), *descriptor, reactor);
}

Result<std::unique_ptr<BlockingDisk>> open_blocking_disk(std::shared_ptr<DiskFile> file) {
  const auto descriptor = file->reopen();
  if (!descriptor) return fail(descriptor.error());
  return std::make_unique<PosixBlockingDisk>(std::move(file), *descriptor);
}

}  // namespace sarsen
