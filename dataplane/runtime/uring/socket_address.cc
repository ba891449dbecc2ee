#include "dataplane/runtime/uring/socket_address.h"

#include <charconv>
#include <cstddef>
#include <cstring>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>

namespace sarsen {
namespace {

constexpr std::string_view kTcpPrefix = "tcp:";
constexpr std::string_view kUnixPrefix = "unix:";
constexpr std::size_t kPathOffset = offsetof(sockaddr_un, sun_path);

Unexpected refuse(const Address& address, const std::string& reason) {
  return fail(make_error(RuntimeError::address_invalid, "\"" + address + "\": " + reason));
}

Result<SocketAddress> parse_unix(const Address& address, std::string_view path) {
  SocketAddress result;
  auto& name = reinterpret_cast<sockaddr_un&>(result.storage);
  if (path.empty() || path.size() >= sizeof(name.sun_path) ||
      path.find('\0') != std::string_view::npos) {
    return refuse(address, "a unix socket's path has 1 to " +
                               std::to_string(sizeof(name.sun_path) - 1) + " characters");
  }
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, path.data(), path.size());
  result.size = static_cast<socklen_t>(kPathOffset + path.size() + 1);
  return result;
}

bool fill_ipv4(SocketAddress& result, const std::string& host, std::uint16_t port) {
  auto& name = reinterpret_cast<sockaddr_in&>(result.storage);
  if (inet_pton(AF_INET, host.c_str(), &name.sin_addr) != 1) return false;
  name.sin_family = AF_INET;
  name.sin_port = htons(port);
  result.size = sizeof(name);
  return true;
}

bool fill_ipv6(SocketAddress& result, const std::string& host, std::uint16_t port) {
  auto& name = reinterpret_cast<sockaddr_in6&>(result.storage);
  if (host.size() < 2 || host.front() != '[' || host.back() != ']') return false;
  if (inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &name.sin6_addr) != 1) {
    return false;
  }
  name.sin6_family = AF_INET6;
  name.sin6_port = htons(port);
  result.size = sizeof(name);
  return true;
}

Result<SocketAddress> parse_tcp(const Address& address, std::string_view rest) {
  const auto colon = rest.rfind(':');
  if (colon == std::string_view::npos) return refuse(address, "tcp:HOST:PORT is expected");
  const std::string_view digits = rest.substr(colon + 1);
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    return refuse(address, "the port is a number from 0 to 65535");
  }
  SocketAddress result;
  const std::string host(rest.substr(0, colon));
  if (fill_ipv4(result, host, port) || fill_ipv6(result, host, port)) return result;
  return refuse(address, "the host is a literal address: 192.0.2.1, or [2001:db8::1]");
}

}  // namespace

std::string_view SocketAddress::path() const {
  if (!is_unix() || size <= kPathOffset) return {};
  const auto& name = reinterpret_cast<const sockaddr_un&>(storage);
  return {name.sun_path, strnlen(name.sun_path, size - kPathOffset)};
}

Result<SocketAddress> parse_address(const Address& address) {
  const std::string_view text = address;
  if (text.starts_with(kUnixPrefix)) return parse_unix(address, text.substr(kUnixPrefix.size()));
  if (text.starts_with(kTcpPrefix)) return parse_tcp(address, text.substr(kTcpPrefix.size()));
  return refuse(address, "tcp:HOST:PORT or unix:PATH is expected");
}

Address format_address(const SocketAddress& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.family() == AF_INET) {
    const auto& name = reinterpret_cast<const sockaddr_in&>(address.storage);
    inet_ntop(AF_INET, &name.sin_addr, text, sizeof(text));
    return std::string(kTcpPrefix) + text + ":" + std::to_string(ntohs(name.sin_port));
  }
  if (address.family() == AF_INET6) {
    const auto& name = reinterpret_cast<const sockaddr_in6&>(address.storage);
    inet_ntop(AF_INET6, &name.sin6_addr, text, sizeof(text));
    return std::string(kTcpPrefix) + "[" + text + "]:" + std::to_string(ntohs(name.sin6_port));
  }
  return std::string(kUnixPrefix) + std::string(address.path());
}

}  // namespace sarsen
