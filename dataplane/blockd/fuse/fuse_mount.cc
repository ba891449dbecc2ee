#include "dataplane/blockd/fuse/fuse_mount.h"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataplane/blockd/fuse/fuse_protocol.h"
#include "dataplane/runtime/error.h"

namespace sarsen::fuse {

Result<Mount> make_mount(const std::string& source) {
  Mount made;
  made.connection.reset(::open("/dev/fuse", O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!made.connection) return fail(error_from_errno(errno, "open /dev/fuse"));
  const keeper::Descriptor context(::fsopen("fuse", FSOPEN_CLOEXEC));
  if (!context) return fail(error_from_errno(errno, "fsopen fuse"));

  const std::pair<const char*, std::string> settings[] = {
      {"source", source},
      {"subtype", "sarsen"},
      {"fd", std::to_string(made.connection.get())},
      {"rootmode", "40000"},
      {"user_id", std::to_string(::geteuid())},
      {"group_id", std::to_string(::getegid())},
      {"max_read", std::to_string(kTransferBytesMax)},
  };
  for (const auto& [key, value] : settings) {
    if (::fsconfig(context.get(), FSCONFIG_SET_STRING, key, value.c_str(), 0) != 0) {
      return fail(error_from_errno(errno, std::string("FUSE mount option ") + key));
    }
  }
  if (::fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0) {
    return fail(error_from_errno(errno, "create a FUSE mount"));
  }
  made.mount.reset(::fsmount(context.get(), FSMOUNT_CLOEXEC,
                             MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC));
  if (!made.mount) return fail(error_from_errno(errno, "fsmount"));

  // DONT_SYNC: what is asked for must not become a request to the server, which is us.
  struct statx status{};
  if (::statx(made.mount.get(), "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &status) != 0) {
    return fail(error_from_errno(errno, "statx of a FUSE mount"));
  }
  made.number = status.stx_dev_minor;
  return made;
}

}  // namespace sarsen::fuse
