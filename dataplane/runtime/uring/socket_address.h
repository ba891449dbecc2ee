// "tcp:HOST:PORT" and "unix:PATH" to what the kernel takes, and back.
#pragma once

#include <string>
#include <string_view>

#include <sys/socket.h>

#include "dataplane/runtime/env.h"

namespace sarsen {

// HOST is a literal IPv4 address, or an IPv6 address in brackets.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
  bool is_unix() const { return family() == AF_UNIX; }
  // The path of a unix address; empty for others.
  std::string_view path() const;
};

// Error: address_invalid, saying what would be accepted.
Result<SocketAddress> parse_address(const Address& address);
Address format_address(const SocketAddress& address);

}  // namespace sarsen
