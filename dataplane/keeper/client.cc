#include "dataplane/keeper/client.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace sarsen::keeper {
namespace {

class KeeperErrors final : public ErrorCategory {
 public:
  std::string_view name() const override { return "keeper"; }
  std::string_view sentence(int code) const override {
    switch (static_cast<KeeperError>(code)) {
      case KeeperError::disconnected: return "the keeper cannot be reached";
      case KeeperError::refused: return "the keeper refused the request";
      case KeeperError::not_found: return "the keeper holds no such name";
      case KeeperError::full: return "the keeper cannot hold more";
      case KeeperError::not_aborted:
        return "the descriptors are closed, but the connection could not be aborted";
      case KeeperError::unsupported: return "the keeper cannot fail a device of this kind";
      case KeeperError::too_large: return "the name, state or number of descriptors is too large";
    }
    return "unknown keeper error";
  }
  ErrorClass error_class(int code) const override {
    switch (static_cast<KeeperError>(code)) {
      case KeeperError::disconnected:
      case KeeperError::full: return ErrorClass::unavailable;
      case KeeperError::refused:
      case KeeperError::not_found:
      case KeeperError::unsupported:
      case KeeperError::too_large: return ErrorClass::invalid;
      case KeeperError::not_aborted: return ErrorClass::failed;
    }
    return ErrorClass::failed;
  }
};

Unexpected error(KeeperError code, std::string detail) {
  return sarsen::fail(Error(keeper_errors(), static_cast<int>(code), std::move(detail)));
}

Unexpected disconnected(const char* doing) {
  return error(KeeperError::disconnected, std::string(doing) + ": " + std::strerror(errno));
}

Unexpected error_of(Status status, std::string_view name) {
  switch (status) {
    case Status::not_found: return error(KeeperError::not_found, std::string(name));
    case Status::full:
    case Status::no_memory: return error(KeeperError::full, std::string(name));
    case Status::not_aborted: return error(KeeperError::not_aborted, std::string(name));
    case Status::unsupported: return error(KeeperError::unsupported, std::string(name));
    default: break;
  }
  return error(KeeperError::refused, "status " + std::to_string(static_cast<int>(status)));
}

using Control = std::array<std::byte, CMSG_SPACE(sizeof(int) * kDescriptorsMax)>;

void attach(msghdr& header, Control& control, std::span<const int> descriptors) {
  if (descriptors.empty()) return;
  header.msg_control = control.data();
  header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
  cmsghdr* item = CMSG_FIRSTHDR(&header);
  item->cmsg_level = SOL_SOCKET;
  item->cmsg_type = SCM_RIGHTS;
  item->cmsg_len = CMSG_LEN(descriptors.size_bytes());
  std::memcpy(CMSG_DATA(item), descriptors.data(), descriptors.size_bytes());
}

std::vector<Descriptor> detach(msghdr& header) {
  std::vector<Descriptor> descriptors;
  for (cmsghdr* item = CMSG_FIRSTHDR(&header); item != nullptr; item = CMSG_NXTHDR(&header, item)) {
    if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int value = -1;
      std::memcpy(&value, CMSG_DATA(item) + i * sizeof(int), sizeof(int));
      descriptors.emplace_back(value);
    }
  }
  return descriptors;
}

}  // namespace

const ErrorCategory& keeper_errors() {
  static const KeeperErrors category;
  return category;
}

Result<Client> Client::connect(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return error(KeeperError::too_large, path);
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  Descriptor connection(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!connection) return disconnected("socket");
  const int bytes = 4 * static_cast<int>(kPacketBytesMax);
  ::setsockopt(connection.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
  if (::connect(connection.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return disconnected(path.c_str());
  }
  return Client(std::move(connection));
}

Result<Client::Reply> Client::call(Verb verb, std::string_view name, std::string_view kind,
                                   std::uint64_t value, std::span<const std::byte> state,
                                   std::span<const int> descriptors) {
  Message request;
  if (name.size() >= sizeof(request.name) || kind.size() >= sizeof(request.kind) ||
      state.size() > kStateBytesMax || descriptors.size() > kDescriptorsMax) {
    return error(KeeperError::too_large, std::string(name));
  }
  request.verb = static_cast<std::uint16_t>(verb);
  request.value = value;
  request.state_bytes = static_cast<std::uint32_t>(state.size());
  request.descriptor_count = static_cast<std::uint32_t>(descriptors.size());
  name.copy(request.name, name.size());
  kind.copy(request.kind, kind.size());

  alignas(cmsghdr) Control control{};
  iovec pieces[2] = {{&request, sizeof(request)},
                     {const_cast<std::byte*>(state.data()), state.size()}};
  msghdr header{};
  header.msg_iov = pieces;
  header.msg_iovlen = state.empty() ? 1 : 2;
  attach(header, control, descriptors);
  if (::sendmsg(connection_.get(), &header, MSG_NOSIGNAL) < 0) return disconnected("send");
  auto reply = receive();
  if (!reply) return reply;
  if (reply->message.magic != kMagic || reply->message.verb != request.verb) {
    return error(KeeperError::refused, "an answer to another request");
  }
  const auto status = static_cast<Status>(reply->message.status);
  if (status != Status::ok) return error_of(status, name);
  return reply;
}

Result<Client::Reply> Client::receive() {
  pollfd polled{connection_.get(), POLLIN, 0};
  const int ready = ::poll(&polled, 1, kAnswerTimeoutMs);
  if (ready == 0) errno = ETIMEDOUT;
  if (ready <= 0) return disconnected("wait for an answer");
  Reply reply;
  reply.state.resize(kStateBytesMax);
  alignas(cmsghdr) Control control{};
  iovec pieces[2] = {{&reply.message, sizeof(reply.message)},
                     {reply.state.data(), reply.state.size()}};
  msghdr header{};
  header.msg_iov = pieces;
  header.msg_iovlen = 2;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const ssize_t received = ::recvmsg(connection_.get(), &header, MSG_CMSG_CLOEXEC);
  if (received == 0) errno = ECONNRESET;
  if (received <= 0) return disconnected("receive");
  reply.descriptors = detach(header);
  if (received < static_cast<ssize_t>(sizeof(Message)) ||
      (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    return error(KeeperError::refused, "an answer that is cut short");
  }
  reply.state.resize(static_cast<std::size_t>(received) - sizeof(Message));
  return reply;
}

Result<std::uint64_t> Client::hello() {
  const auto reply = call(Verb::hello, {}, {}, 0, {}, {});
  if (!reply) return sarsen::fail(reply.error());
  return reply->message.value;
}

Result<void> Client::put(const std::string& name, std::string_view kind, std::uint64_t value,
                         std::span<const std::byte> state, std::span<const int> descriptors) {
  SARSEN_TRY(call(Verb::put, name, kind, value, state, descriptors));
  return {};
}

Result<Held> Client::get(const std::string& name) {
  auto reply = call(Verb::get, name, {}, 0, {}, {});
  if (!reply) return sarsen::fail(reply.error());
  return Held{name,
              reply->message.kind,
              reply->message.value,
              (reply->message.flags & kFlagFailed) != 0,
              std::move(reply->state),
              std::move(reply->descriptors)};
}

Result<std::vector<Held>> Client::list() {
  std::vector<Held> all;
  std::string last;
  for (;;) {
    auto reply = call(Verb::list, last, {}, 0, {}, {});
    if (!reply && reply.error().code() == static_cast<int>(KeeperError::not_found)) return all;
    if (!reply) return sarsen::fail(reply.error());
    const Message& message = reply->message;
    last = message.name;
    all.push_back({last, message.kind, message.value, (message.flags & kFlagFailed) != 0, {}, {}});
  }
}

Result<void> Client::drop(const std::string& name) {
  SARSEN_TRY(call(Verb::drop, name, {}, 0, {}, {}));
  return {};
}

Result<std::uint64_t> Client::session(std::uint64_t floor) {
  const auto reply = call(Verb::session, {}, {}, floor, {}, {});
  if (!reply) return sarsen::fail(reply.error());
  return reply->message.value;
}

Result<void> Client::fail(const std::string& name) {
  SARSEN_TRY(call(Verb::fail, name, {}, 0, {}, {}));
  return {};
}

}  // namespace sarsen::keeper
