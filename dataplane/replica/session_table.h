// SessionTable: who writes to one placement group, and which of their changes were seen (rule R7).
//
// Invariants
//   I-REPLICA-2  A change whose operation id was done in its session is not done again: whoever
//                sends it again gets the same answer, or joins the one that is under way.
//   I-REPLICA-3  After a hello, nothing begins for an older session of the same attachment, nor for
//                an id below what the client said is its first unacknowledged.
//
// Shard      One. No I/O.
// Bounded    A session remembers window_max changes; beyond, new ones are `overloaded` until the
//            client has moved its first unacknowledged id on.
// Errors     wire::RemoteError stale_session, stale_operation, overloaded; bad_request before a
//            hello.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "dataplane/base/result.h"
#include "dataplane/runtime/env.h"
#include "dataplane/runtime/event.h"
#include "dataplane/wire/message.h"

namespace sarsen {

// An attachment's part of a group.
struct SessionKey {
  ImageId image;
  wire::HolderId holder;
  wire::AttachEpoch epoch;
  auto operator<=>(const SessionKey&) const = default;
};

// A change, from its arrival on. Shared by those who sent it again.
struct SessionOperation {
  explicit SessionOperation(Executor& executor, wire::OperationId number)
      : id(number), done(executor) {}
  const wire::OperationId id;
  std::optional<Result<wire::Changed>> result;
  Event done;
};

class SessionTable {
 public:
  SessionTable(const Env& env, std::uint32_t window_max) : env_(env), window_max_(window_max) {}

  // Opens the session, or confirms it. Gives the highest operation id that was seen in it.
  Result<wire::OperationId> hello(const SessionKey& key, wire::SessionId session,
                                  wire::OperationId first_unacknowledged);

  struct Entrance {
    std::shared_ptr<SessionOperation> operation;
    bool first = false;  // the caller does it, and then calls finish()
  };
  Result<Entrance> enter(const SessionKey& key, const wire::Origin& origin);
  // Whether the session is still the newest one; asked after each wait.
  Result<void> check(const SessionKey& key, wire::SessionId session) const;
  // Tells those who joined. A change that failed is forgotten: sent again, it is tried again.
  void finish(const SessionKey& key, const std::shared_ptr<SessionOperation>& operation,
              const Result<wire::Changed>& result);
  // What the attachment has begun and not ended, in all of its sessions.
  std::vector<std::shared_ptr<SessionOperation>> under_way(const SessionKey& key) const;

  // Forgets the attachments that `is_attached` does not know any more.
  void forget_detached(const std::function<bool(const SessionKey&)>& is_attached);

 private:
  struct Session {
    wire::SessionId id;
    wire::OperationId first_unacknowledged;
    wire::OperationId highest;
    // By id; none below first_unacknowledged.
    std::map<wire::OperationId, std::shared_ptr<SessionOperation>> window;
    // Of earlier sessions too.
    std::vector<std::shared_ptr<SessionOperation>> under_way;
  };
  static void acknowledge(Session& session, wire::OperationId first_unacknowledged);

  const Env& env_;
  const std::uint32_t window_max_;
  std::map<SessionKey, Session> sessions_;
};

}  // namespace sarsen
