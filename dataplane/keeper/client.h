// Talks to the keeper: one blocking call is one request and its reply.
//
// Thread    Any, one at a time. Never a shard thread: a call waits up to kAnswerTimeoutMs.
// Owns      Its connection. Descriptors that get() returns belong to the caller.
// Errors    Values of the category "keeper". After `disconnected` the client is of no use; open a
//           new one, and put again everything that is held (the keeper may be a new, empty one).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dataplane/base/result.h"
#include "dataplane/keeper/descriptor.h"
#include "dataplane/keeper/protocol.h"

namespace sarsen::keeper {

enum class KeeperError {
  disconnected = 1,
  refused,
  not_found,
  full,
  not_aborted,
  unsupported,
  too_large,
};
const ErrorCategory& keeper_errors();

struct Held {
  std::string name;
  std::string kind;
  std::uint64_t value = 0;
  bool failed = false;
  std::vector<std::byte> state;         // empty in answers of list()
  std::vector<Descriptor> descriptors;  // empty in answers of list()
};

class Client {
 public:
  static constexpr int kAnswerTimeoutMs = 5000;

  static Result<Client> connect(const std::string& path);

  // The keeper's incarnation: another value than before means that it has started anew, empty.
  Result<std::uint64_t> hello();
  Result<void> put(const std::string& name, std::string_view kind, std::uint64_t value,
                   std::span<const std::byte> state, std::span<const int> descriptors);
  Result<Held> get(const std::string& name);
  // In the order of names.
  Result<std::vector<Held>> list();
  Result<void> drop(const std::string& name);
  // A session number (rule R7) above `floor`, the last one this server knows of, or 0.
  Result<std::uint64_t> session(std::uint64_t floor);
  // Makes the device answer errors from now on, server or not.
  Result<void> fail(const std::string& name);

  // Readable or hung up when the keeper has gone. Borrowed.
  int descriptor() const { return connection_.get(); }

 private:
  struct Reply {
    Message message;
    std::vector<std::byte> state;
    std::vector<Descriptor> descriptors;
  };
  explicit Client(Descriptor connection) : connection_(std::move(connection)) {}
  Result<Reply> call(Verb verb, std::string_view name, std::string_view kind, std::uint64_t value,
                     std::span<const std::byte> state, std::span<const int> descriptors);
  Result<Reply> receive();

  Descriptor connection_;
};

}  // namespace sarsen::keeper
