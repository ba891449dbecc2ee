#include "dataplane/runtime/uring/uring_listener.h"

#include <filesystem>

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataplane/runtime/uring/uring_connection.h"

namespace sarsen {
namespace {

// A peer that is silently gone is found after kKeepAliveIdle + count * interval seconds.
constexpr int kKeepAliveIdleSeconds = 10;
constexpr int kKeepAliveIntervalSeconds = 3;
constexpr int kKeepAliveCount = 3;

class ScopedDescriptor {
 public:
  explicit ScopedDescriptor(int descriptor) : descriptor_(descriptor) {}
  ~ScopedDescriptor() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  ScopedDescriptor(const ScopedDescriptor&) = delete;
  ScopedDescriptor& operator=(const ScopedDescriptor&) = delete;
  int get() const { return descriptor_; }
  int release() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_;
};

void set_option(int descriptor, int level, int option, int value) {
  setsockopt(descriptor, level, option, &value, sizeof(value));
}

// Held from the look at an old socket file until the new one listens.
ScopedDescriptor lock_directory_of(const std::string& path) {
  std::string directory = std::filesystem::path(path).parent_path();
  if (directory.empty()) directory = ".";
  ScopedDescriptor opened(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.get() >= 0) flock(opened.get(), LOCK_EX);
  return ScopedDescriptor(opened.release());
}

// Removes a socket that nobody listens on any more.
Result<void> make_way(const SocketAddress& address) {
  const std::string path(address.path());
  struct stat status{};
  if (lstat(path.c_str(), &status) != 0) return {};  // bind() will complain about the rest
  if (!S_ISSOCK(status.st_mode)) {
    return fail(make_error(RuntimeError::address_in_use, path + " exists and is not a socket"));
  }
  const ScopedDescriptor probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (probe.get() < 0) return fail(error_from_errno(errno, "make a socket"));
  // Only a refusal shows that nobody is there; a full backlog, for one, is somebody.
  if (connect(probe.get(), address.get(), address.size) == 0 || errno != ECONNREFUSED) {
    return fail(make_error(RuntimeError::address_in_use, "another process answers on " + path));
  }
  if (unlink(path.c_str()) == 0 || errno == ENOENT) return {};
  return fail(error_from_errno(errno, "remove the stale socket " + path));
}

Result<void> bind_and_listen(int descriptor, const SocketAddress& address, int backlog) {
  const auto doing = [&] { return "listen on " + format_address(address); };
  if (!address.is_unix()) {
    set_option(descriptor, SOL_SOCKET, SO_REUSEADDR, 1);
    if (bind(descriptor, address.get(), address.size) != 0) {
      return fail(error_from_errno(errno, doing()));
    }
    if (::listen(descriptor, backlog) != 0) return fail(error_from_errno(errno, doing()));
    return {};
  }
  const ScopedDescriptor lock = lock_directory_of(std::string(address.path()));
  SARSEN_TRY(make_way(address));
  if (bind(descriptor, address.get(), address.size) != 0 || ::listen(descriptor, backlog) != 0) {
    return fail(error_from_errno(errno, doing()));
  }
  return {};
}

}  // namespace

void set_connection_options(int descriptor, const SocketAddress& peer) {
  if (peer.is_unix()) return;
  set_option(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveIdleSeconds);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveIntervalSeconds);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPCNT, kKeepAliveCount);
}

Result<std::unique_ptr<Listener>> UringListener::open(Reactor& reactor,
                                                      const SocketAddress& address, int backlog) {
  ScopedDescriptor descriptor(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (descriptor.get() < 0) return fail(error_from_errno(errno, "make a socket"));
  SARSEN_TRY(bind_and_listen(descriptor.get(), address, backlog));
  SocketAddress bound;
  bound.size = sizeof(bound.storage);
  if (getsockname(descriptor.get(), bound.get(), &bound.size) != 0) {
    return fail(error_from_errno(errno, "getsockname"));
  }
  return std::unique_ptr<Listener>(
      new UringListener(reactor, descriptor.release(), format_address(bound), identify(address)));
}

UringListener::UringListener(Reactor& reactor, int descriptor, Address address, SocketFile file)
    : reactor_(reactor),
      file_(reactor, descriptor),
      address_(std::move(address)),
      socket_file_(std::move(file)) {}

UringListener::~UringListener() {
  SARSEN_ASSERT(!accepting_, "a listener outlives its accept");
  close();
}

UringListener::SocketFile UringListener::identify(const SocketAddress& address) {
  SocketFile file{std::string(address.path())};
  struct stat status{};
  if (file.path.empty() || lstat(file.path.c_str(), &status) != 0) return {};
  file.device = status.st_dev;
  file.inode = status.st_ino;
  return file;
}

void UringListener::remove_socket_file() {
  if (socket_file_.path.empty()) return;
  const ScopedDescriptor lock = lock_directory_of(socket_file_.path);
  struct stat status{};
  if (lstat(socket_file_.path.c_str(), &status) != 0) return;
  if (status.st_dev != socket_file_.device || status.st_ino != socket_file_.inode) return;
  unlink(socket_file_.path.c_str());
}

void UringListener::close() {
  if (std::exchange(closed_, true)) return;
  remove_socket_file();
  shutdown(file_.descriptor(), SHUT_RDWR);  // ends an accept, and nobody connects any more
}

Task<Result<std::unique_ptr<Connection>>> UringListener::accept() {
  SARSEN_ASSERT(!accepting_, "one accept at a time");
  while (!closed_) {
    SocketAddress peer;
    peer.size = sizeof(peer.storage);
    accepting_ = true;
    const RingResult accepted = co_await RingOperation(reactor_, [&](io_uring_sqe& entry) {
      io_uring_prep_accept(&entry, -1, peer.get(), &peer.size, SOCK_CLOEXEC);
      file_.select(entry);
    });
    accepting_ = false;
    ScopedDescriptor descriptor(accepted.value);
    // close() may have come meanwhile.
    if (closed_) break;
    if (descriptor.get() >= 0) {
      set_connection_options(descriptor.get(), peer);
      co_return std::make_unique<UringConnection>(reactor_, descriptor.release(),
                                                  format_address(peer));
    }
    // A peer that gave up while it was in the backlog is no reason to stop.
    const int error = -accepted.value;
    if (error != EINTR && error != EAGAIN && error != ECONNABORTED) {
      co_return fail(error_from_errno(error, "accept on " + address_));
    }
  }
  co_return fail(make_error(RuntimeError::stopped, "the listener on " + address_));
}

}  // namespace sarsen
