// The other end of an NBD connection for tests: bytes in, bytes out, nothing interpreted.
#pragma once

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "dataplane/blockd/nbd/big_endian.h"
#include "dataplane/blockd/nbd/nbd_export.h"
#include "dataplane/blockd/nbd/nbd_protocol.h"
#include "dataplane/runtime/error.h"
#include "dataplane/runtime/scope.h"
#include "tests/support/memory_env.h"
#include "tests/support/memory_target.h"

namespace sarsen::nbd {

using Bytes = std::vector<std::byte>;

// Builds a message from integers (big-endian, in their own width), enums and text.
template <typename... Parts>
Bytes message(const Parts&... parts) {
  Bytes bytes;
  BigEndianWriter writer(bytes);
  const auto put = [&](const auto& part) {
    if constexpr (std::is_convertible_v<decltype(part), std::string_view>) {
      writer.text(part);
    } else {
      writer.put(part);
    }
  };
  (put(parts), ...);
  return bytes;
}

inline Bytes option_message(Option option, const Bytes& data = {}) {
  Bytes bytes = message(kOptionMagic, option, static_cast<std::uint32_t>(data.size()));
  bytes.insert(bytes.end(), data.begin(), data.end());
  return bytes;
}

inline Bytes request_message(Command command, std::uint16_t flags, std::uint64_t cookie,
                             std::uint64_t offset, std::uint32_t length) {
  return message(kRequestMagic, flags, command, cookie, offset, length);
}

// One export, "disk", also the default one.
class OneExport final : public Exports {
 public:
  OneExport(Executor& executor, std::uint64_t size_bytes, bool read_only = false)
      : target(std::make_shared<test::MemoryTarget>(executor, size_bytes, read_only)) {}
  std::vector<ExportSummary> list() override { return {{"disk", "a disk in memory"}}; }
  Task<Result<Export>> open(std::string name) override {
    if (!name.empty() && name != "disk") co_return fail(make_error(RuntimeError::not_found, name));
    co_return Export{{"disk", "a disk in memory"}, target, block_bytes_min};
  }
  std::shared_ptr<test::MemoryTarget> target;
  std::uint32_t block_bytes_min = 1;
};

class RawClient {
 public:
  RawClient(test::MemoryEnv& env, std::unique_ptr<Connection> connection)
      : env_(env), connection_(std::move(connection)), scope_(env.executor) {}
  ~RawClient() { hang_up(); }

  void send(Bytes bytes) {
    scope_.spawn(send_all(std::move(bytes)));
    env_.run_until_idle();
  }
  // Starts to take what the server sends; until then it is a client that does not read.
  void listen() {
    scope_.spawn(receive_all());
    env_.run_until_idle();
  }
  std::size_t arrived() const { return received_.size(); }
  // The next `count` bytes; fewer when they have not arrived.
  Bytes take(std::size_t count) {
    count = std::min(count, received_.size());
    Bytes bytes(received_.begin(), received_.begin() + static_cast<std::ptrdiff_t>(count));
    received_.erase(received_.begin(), received_.begin() + static_cast<std::ptrdiff_t>(count));
    return bytes;
  }
  // The server closed the connection.
  bool ended() const { return ended_; }
  void hang_up() {
    connection_->close();
    env_.run_until_idle();
  }

  // Goes as far as transmission on the default export; forgets what the server said.
  void connect_to_default(bool structured) {
    listen();
    send(message(std::uint32_t{kFixedNewstyle | kNoZeroes}));
    if (structured) {
      send(option_message(Option::structured_reply));
      const std::string_view query = "base:allocation";
      send(option_message(Option::set_meta_context,
                          message(std::uint32_t{0}, std::uint32_t{1},
                                  static_cast<std::uint32_t>(query.size()), query)));
    }
    send(option_message(Option::go, message(std::uint32_t{0}, std::uint16_t{0})));
    take(arrived());
  }

 private:
  Task<void> send_all(Bytes bytes) {
    const std::array<std::span<const std::byte>, 1> pieces{bytes};
    (void)co_await connection_->send(pieces);
  }
  Task<void> receive_all() {
    Bytes buffer(64 * kKiB);
    while (true) {
      const auto count = co_await connection_->receive(buffer);
      if (!count || *count == 0) break;
      received_.insert(received_.end(), buffer.begin(),
                       buffer.begin() + static_cast<std::ptrdiff_t>(*count));
    }
    ended_ = true;
  }

  test::MemoryEnv& env_;
  std::unique_ptr<Connection> connection_;
  Bytes received_;
  bool ended_ = false;
  Scope scope_;
};

}  // namespace sarsen::nbd
