#include "dataplane/keeper/fuse_abort.h"

#include <cerrno>
#include <cstdio>

#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

namespace sarsen::keeper {
namespace {

// A private, unattached mount of fusectl, or -1. It has one folder per connection of the host.
int open_fusectl() {
  const int context = ::fsopen("fusectl", FSOPEN_CLOEXEC);
  if (context < 0) return -1;
  int mount = -1;
  if (::fsconfig(context, FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) == 0) {
    mount = ::fsmount(context, FSMOUNT_CLOEXEC, 0);
  }
  ::close(context);
  return mount;
}

}  // namespace

bool abort_fuse_connection(std::uint64_t connection) {
  const int mount = open_fusectl();
  if (mount < 0) return false;
  char path[32];
  std::snprintf(path, sizeof(path), "%llu/abort", static_cast<unsigned long long>(connection));
  const int file = ::openat(mount, path, O_WRONLY | O_CLOEXEC);
  bool done = file < 0 && errno == ENOENT;
  if (file >= 0) {
    done = ::write(file, "1", 1) == 1;
    ::close(file);
  }
  ::close(mount);
  return done;
}

}  // namespace sarsen::keeper
