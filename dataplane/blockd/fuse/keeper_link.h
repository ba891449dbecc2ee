// This server's side of the keeper: everything that must outlive the server is put here, and put
// again into every new keeper, so that losing either one loses nothing (I-KEEPER-1).
//
// Thread     Any; calls block (use the BlockingPool). One thread of its own waits for the keeper to
//            go away and comes back with everything.
// Owns       Duplicates of the descriptors it was given, until drop().
// Errors     The keeper's; `disconnected` when no keeper was found for kReconnectMs. What was put
//            stays recorded all the same, and reaches the next keeper.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "dataplane/base/result.h"
#include "dataplane/keeper/client.h"
#include "dataplane/keeper/descriptor.h"

namespace sarsen::fuse {

class KeeperLink {
 public:
  static constexpr int kReconnectMs = 10'000;

  // Error: disconnected, when no keeper answers within kReconnectMs.
  static Result<std::unique_ptr<KeeperLink>> start(std::string socket_path);
  ~KeeperLink();

  // Everything the keeper holds, to be called once at start, before any put().
  Result<std::vector<keeper::Held>> recover();
  Result<void> put(const std::string& name, std::string_view kind, std::uint64_t value,
                   std::span<const std::byte> state, std::span<const int> descriptors);
  Result<void> drop(const std::string& name);
  // A session number (rule R7) above all that this server or an earlier one had.
  Result<std::uint64_t> session();
  Result<void> fail(const std::string& name);

  // How often everything was put into a new connection.
  std::uint64_t refills() const;

 private:
  struct Record {
    std::string kind;
    std::uint64_t value = 0;
    std::vector<std::byte> state;
    std::vector<keeper::Descriptor> descriptors;
  };
  using Lock = std::unique_lock<std::mutex>;

  explicit KeeperLink(std::string socket_path);
  void watch();
  // Connects and puts everything. With the lock held.
  Result<void> refill();
  void wake_watcher();
  // Runs `call` on a connection; when that is lost, waits for the next one and runs it again.
  template <typename Call>
  auto with_keeper(Call call) -> decltype(call(std::declval<keeper::Client&>()));

  const std::string socket_path_;
  const keeper::Descriptor wake_;
  mutable std::mutex mutex_;
  std::condition_variable connected_;
  std::optional<keeper::Client> client_;
  std::map<std::string, Record> records_;
  std::uint64_t session_ = 0;
  std::uint64_t refills_ = 0;
  bool stopping_ = false;
  std::thread watcher_;
};

}  // namespace sarsen::fuse
