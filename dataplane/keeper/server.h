// The keeper's socket: reads one request, answers it, and does nothing else.
//
// Lifecycle  listen() once, then run() until stop(). One thread, no waiting inside a request.
// Bounds     kConnectionsMax clients; one request of each at a time; buffers are members.
// Trust      Only root and the keeper's own user are answered; others are closed at accept.
// Errors     A client that breaks the protocol is answered bad_request or, when that cannot be
//            sent, closed. Nothing a client does can end the keeper.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "dataplane/keeper/protocol.h"
#include "dataplane/keeper/table.h"

namespace sarsen::keeper {

class Server {
 public:
  Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server();

  // Takes over `path`, refusing when another keeper serves it. Empty on success, else what failed.
  std::string listen(const std::string& path);
  void run();
  // From any thread or signal handler.
  void stop();

 private:
  static constexpr std::size_t kConnectionsMax = 64;
  struct Request {
    std::uint32_t descriptor_count = 0;
    std::array<int, kDescriptorsMax> descriptors = {};
  };

  void accept_one();
  void close_connection(std::size_t index);
  // False: the connection ended or broke the protocol beyond an answer.
  bool serve_one(int connection);
  void handle(Request& request);
  void handle_get(Message& message);
  Status handle_put(const Message& message, Request& request);
  Status handle_fail(Message& message);
  std::uint64_t next_session(std::uint64_t floor);
  bool send_reply(int connection);

  Table table_;
  std::uint64_t incarnation_;
  std::uint64_t session_;
  int lock_ = -1;
  int listener_ = -1;
  int stop_event_ = -1;
  std::size_t connection_count_ = 0;
  std::array<int, kConnectionsMax> connections_ = {};
  // The packet being served: the request, then in place its reply.
  std::array<std::byte, kPacketBytesMax> packet_ = {};
  std::size_t packet_bytes_ = 0;
  const Entry* reply_entry_ = nullptr;  // whose state and descriptors the reply carries
};

}  // namespace sarsen::keeper
