#include "dataplane/replica/session_table.h"

#include <algorithm>
#include <string>

#include "dataplane/wire/error.h"

namespace sarsen {

using wire::RemoteError;

void SessionTable::acknowledge(Session& session, wire::OperationId first_unacknowledged) {
  if (first_unacknowledged <= session.first_unacknowledged) return;
  session.first_unacknowledged = first_unacknowledged;
  session.window.erase(session.window.begin(), session.window.lower_bound(first_unacknowledged));
}

Result<wire::OperationId> SessionTable::hello(const SessionKey& key, wire::SessionId session,
                                              wire::OperationId first_unacknowledged) {
  Session& known = sessions_[key];
  if (session < known.id) {
    return fail(wire::make_error(RemoteError::stale_session,
                                 "session " + std::to_string(known.id.value) + " said hello"));
  }
  if (session > known.id) {
    known.id = session;
    known.first_unacknowledged = {};
    known.highest = {};
    known.window.clear();
  }
  acknowledge(known, first_unacknowledged);
  return known.highest;
}

Result<void> SessionTable::check(const SessionKey& key, wire::SessionId session) const {
  if (env_.faults.planted("replica.skip_session_check")) return {};
  const auto found = sessions_.find(key);
  if (found == sessions_.end() || session > found->second.id) {
    return fail(wire::make_error(RemoteError::bad_request, "a pg_hello comes first"));
  }
  if (session < found->second.id) {
    return fail(
        wire::make_error(RemoteError::stale_session,
                         "session " + std::to_string(found->second.id.value) + " said hello"));
  }
  return {};
}

Result<SessionTable::Entrance> SessionTable::enter(const SessionKey& key,
                                                   const wire::Origin& origin) {
  SARSEN_TRY(check(key, origin.attachment.session));
  Session& session = sessions_[key];
  acknowledge(session, origin.first_unacknowledged);
  const wire::OperationId id = origin.operation;
  const bool dedupe = !env_.faults.planted("replica.skip_dedupe");
  if (dedupe && id < session.first_unacknowledged) {
    return fail(wire::make_error(RemoteError::stale_operation,
                                 "operation " + std::to_string(id.value) +
                                     ", the first unacknowledged is " +
                                     std::to_string(session.first_unacknowledged.value)));
  }
  // I-REPLICA-2
  if (const auto seen = session.window.find(id); dedupe && seen != session.window.end()) {
    env_.faults.probe("replica.sent_again");
    return Entrance{.operation = seen->second, .first = false};
  }
  // Those in between are few, and are what the window waits for.
  if (session.window.size() >= window_max_ && id > session.highest) {
    return fail(wire::make_error(RemoteError::overloaded, "too many changes to remember"));
  }
  auto operation = std::make_shared<SessionOperation>(env_.executor, id);
  session.window.insert_or_assign(id, operation);
  session.under_way.push_back(operation);
  session.highest = std::max(session.highest, id);
  return Entrance{.operation = std::move(operation), .first = true};
}

void SessionTable::finish(const SessionKey& key, const std::shared_ptr<SessionOperation>& operation,
                          const Result<wire::Changed>& result) {
  operation->result = result;
  operation->done.set();
  const auto found = sessions_.find(key);
  if (found == sessions_.end()) return;
  Session& session = found->second;
  std::erase(session.under_way, operation);
  const auto remembered = session.window.find(operation->id);
  // A newer session may use the same ids.
  if (remembered == session.window.end() || remembered->second != operation) return;
  if (!result) session.window.erase(remembered);
}

std::vector<std::shared_ptr<SessionOperation>> SessionTable::under_way(
    const SessionKey& key) const {
  const auto found = sessions_.find(key);
  if (found == sessions_.end()) return {};
  return found->second.under_way;
}

void SessionTable::forget_detached(const std::function<bool(const SessionKey&)>& is_attached) {
  std::erase_if(sessions_, [&](const auto& entry) { return !is_attached(entry.first); });
}

}  // namespace sarsen
