#include "dataplane/mon/listening.h"

#include <cstring>
#include <filesystem>

#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "dataplane/membership/mon_error.h"

namespace sarsen {
namespace {

constexpr std::string_view kUnix = "unix:";

bool somebody_listens(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return false;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  const int descriptor = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor < 0) return false;
  const int connected =
      ::connect(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  // A full backlog is somebody too.
  const bool listens = connected == 0 || errno == EAGAIN;
  ::close(descriptor);
  return listens;
}

}  // namespace

Result<void> prepare_listening(const Address& address) {
  if (!address.starts_with(kUnix)) return {};
  const std::string path = address.substr(kUnix.size());
  const std::string folder = std::filesystem::path(path).parent_path();
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return fail(make_error(MonError::bad_request, "cannot make the folder " + folder +
                                                      " of the socket: " + std::strerror(errno)));
  }
  if (somebody_listens(path)) {
    return fail(make_error(MonError::in_use, "another process listens on " + path));
  }
  return {};
}

Result<void> restrict_socket(const Address& address) {
  if (!address.starts_with(kUnix)) return {};
  const std::string path = address.substr(kUnix.size());
  if (::chmod(path.c_str(), 0600) == 0) return {};
  return fail(
      make_error(MonError::bad_request, "cannot restrict " + path + ": " + std::strerror(errno)));
}

}  // namespace sarsen
