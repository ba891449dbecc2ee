#include "dataplane/keeper/server.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <string_view>

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "dataplane/keeper/fuse_abort.h"

namespace sarsen::keeper {
namespace {

// Nanoseconds since this boot. Counters that start here are above all that an earlier keeper of the
// same boot gave out, which is why nothing needs to be written to disk.
std::uint64_t boot_nanoseconds() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}

bool is_trusted(int connection) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == 0 || peer.uid == ::geteuid();
}

// Room for one whole packet; the default suffices unless an administrator lowered it.
void ask_for_buffers(int connection) {
  const int bytes = 4 * static_cast<int>(kPacketBytesMax);
  ::setsockopt(connection, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
}

std::string failure(const char* doing, const std::string& path) {
  return std::string(doing) + " " + path + ": " + std::strerror(errno);
}

template <std::size_t N>
bool is_text(const char (&field)[N]) {
  return std::memchr(field, '\0', N) != nullptr;
}

template <std::size_t N>
void put_text(char (&field)[N], const char (&text)[N]) {
  std::memcpy(field, text, N);
}

void close_all(std::array<int, kDescriptorsMax>& descriptors, std::uint32_t& count) {
  for (std::uint32_t i = 0; i < count; ++i) ::close(descriptors[i]);
  count = 0;
}

}  // namespace

Server::Server()
    : incarnation_(boot_nanoseconds()),
      session_(incarnation_),
      stop_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Server::~Server() {
  while (connection_count_ > 0) close_connection(connection_count_ - 1);
  for (const int descriptor : {listener_, stop_event_, lock_}) {
    if (descriptor >= 0) ::close(descriptor);
  }
}

std::string Server::listen(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) return "socket path: bad length";
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);

  // The lock, not the socket file, says whether a keeper lives: it goes with the process.
  const std::string lock_path = path + ".lock";
  lock_ = ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_ < 0) return failure("open", lock_path);
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) return failure("another keeper serves", path);

  listener_ = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener_ < 0) return failure("socket", path);
  ::unlink(path.c_str());
  const mode_t old_mask = ::umask(0077);
  const int bound = ::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  ::umask(old_mask);
  if (bound != 0) return failure("bind", path);
  if (::listen(listener_, kConnectionsMax) != 0) return failure("listen", path);
  return {};
}

void Server::run() {
  std::array<pollfd, kConnectionsMax + 2> polled{};
  for (;;) {
    polled[0] = {stop_event_, POLLIN, 0};
    polled[1] = {listener_, POLLIN, 0};
    for (std::size_t i = 0; i < connection_count_; ++i)
      polled[i + 2] = {connections_[i], POLLIN, 0};
    if (::poll(polled.data(), connection_count_ + 2, -1) < 0) continue;  // EINTR
    if (polled[0].revents != 0) return;
    // From the last, because closing one moves the last into its place.
    for (std::size_t i = connection_count_; i-- > 0;) {
      if (polled[i + 2].revents != 0 && !serve_one(connections_[i])) close_connection(i);
    }
    if (polled[1].revents != 0) accept_one();
  }
}

void Server::stop() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_event_, &one, sizeof(one));
}

void Server::accept_one() {
  const int connection = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (connection < 0) return;
  if (connection_count_ == kConnectionsMax || !is_trusted(connection)) {
    ::close(connection);
    return;
  }
  ask_for_buffers(connection);
  connections_[connection_count_++] = connection;
}

void Server::close_connection(std::size_t index) {
  ::close(connections_[index]);
  connections_[index] = connections_[--connection_count_];
}

bool Server::serve_one(int connection) {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * kDescriptorsMax)> control{};
  iovec piece{packet_.data(), packet_.size()};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const ssize_t received = ::recvmsg(connection, &header, MSG_CMSG_CLOEXEC);
  if (received < 0) return errno == EAGAIN || errno == EINTR;
  if (received == 0) return false;
  packet_bytes_ = static_cast<std::size_t>(received);

  Request request;
  for (cmsghdr* item = CMSG_FIRSTHDR(&header); item != nullptr; item = CMSG_NXTHDR(&header, item)) {
    if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS) continue;
    request.descriptor_count =
        static_cast<std::uint32_t>((item->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    std::memcpy(request.descriptors.data(), CMSG_DATA(item),
                sizeof(int) * request.descriptor_count);
  }
  const bool truncated = (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
  if (truncated) packet_bytes_ = 0;  // refused below
  handle(request);
  close_all(request.descriptors, request.descriptor_count);  // what no entry took
  return send_reply(connection);
}

void Server::handle(Request& request) {
  Message message;
  reply_entry_ = nullptr;
  Status status = Status::bad_request;
  const bool has_header = packet_bytes_ >= sizeof(message);
  if (has_header) std::memcpy(&message, packet_.data(), sizeof(message));
  if (has_header && message.magic == kMagic && message.version != kVersion) {
    status = Status::bad_version;
  } else if (has_header && message.magic == kMagic && is_text(message.name) &&
             is_text(message.kind) && message.status == 0 && message.flags == 0 &&
             message.state_bytes == packet_bytes_ - sizeof(message) &&
             message.descriptor_count == request.descriptor_count) {
    message.state_bytes = message.descriptor_count = 0;
    switch (static_cast<Verb>(message.verb)) {
      case Verb::hello:
        message.value = incarnation_;
        status = Status::ok;
        break;
      case Verb::put: status = handle_put(message, request); break;
      case Verb::get:
      case Verb::list:
        handle_get(message);
        status = reply_entry_ == nullptr ? Status::not_found : Status::ok;
        if (static_cast<Verb>(message.verb) == Verb::list) reply_entry_ = nullptr;
        break;
      case Verb::drop:
        if (Entry* entry = table_.find(message.name)) {
          Table::clear(*entry);
          status = Status::ok;
        } else {
          status = Status::not_found;
        }
        break;
      case Verb::session:
        message.value = next_session(message.value);
        status = Status::ok;
        break;
      case Verb::fail: status = handle_fail(message); break;
    }
  }
  message.magic = kMagic;
  message.version = kVersion;
  message.status = static_cast<std::uint32_t>(status);
  std::memcpy(packet_.data(), &message, sizeof(message));
}

void Server::handle_get(Message& message) {
  const bool next = static_cast<Verb>(message.verb) == Verb::list;
  const Entry* entry = next ? table_.after(message.name) : table_.find(message.name);
  reply_entry_ = entry;
  if (entry == nullptr) return;
  put_text(message.name, entry->name);
  put_text(message.kind, entry->kind);
  message.value = entry->value;
  message.flags = entry->failed ? kFlagFailed : 0;
  message.state_bytes = entry->state_bytes;
  message.descriptor_count = entry->descriptor_count;
}

Status Server::handle_put(const Message& message, Request& request) {
  if (message.name[0] == '\0') return Status::bad_request;
  const std::span<const std::byte> state(packet_.data() + sizeof(message),
                                         packet_bytes_ - sizeof(message));
  const std::span<const int> descriptors(request.descriptors.data(), request.descriptor_count);
  const Status status = table_.put(message.name, message.kind, message.value, state, descriptors);
  if (status == Status::ok) request.descriptor_count = 0;  // the entry owns them now
  return status;
}

Status Server::handle_fail(Message& message) {
  Entry* entry = table_.find(message.name);
  if (entry == nullptr) return Status::not_found;
  entry->failed = true;
  // Of a FUSE connection the abort alone suffices, with or without a server. Where it is not
  // permitted, closing ours does the same as soon as no server holds another.
  const bool is_fuse = kKindFuse == entry->kind;
  const bool aborted = is_fuse && abort_fuse_connection(entry->value);
  Table::close_descriptors(*entry);
  if (!is_fuse) return Status::unsupported;
  return aborted ? Status::ok : Status::not_aborted;
}

std::uint64_t Server::next_session(std::uint64_t floor) {
  session_ = std::max({session_, floor, boot_nanoseconds()}) + 1;
  return session_;
}

bool Server::send_reply(int connection) {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * kDescriptorsMax)> control{};
  iovec pieces[2] = {{packet_.data(), sizeof(Message)}, {nullptr, 0}};
  msghdr header{};
  header.msg_iov = pieces;
  header.msg_iovlen = 1;
  if (reply_entry_ != nullptr && reply_entry_->state_bytes > 0) {
    pieces[1] = {reply_entry_->state, reply_entry_->state_bytes};
    header.msg_iovlen = 2;
  }
  if (reply_entry_ != nullptr && reply_entry_->descriptor_count > 0) {
    const std::size_t bytes = sizeof(int) * reply_entry_->descriptor_count;
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* item = CMSG_FIRSTHDR(&header);
    item->cmsg_level = SOL_SOCKET;
    item->cmsg_type = SCM_RIGHTS;
    item->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(item), reply_entry_->descriptors.data(), bytes);
  }
  // A client that does not read its replies is closed, never waited for.
  return ::sendmsg(connection, &header, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
}

}  // namespace sarsen::keeper
