#include "dataplane/blockd/nbd/nbd_server.h"

#include <utility>

#include "dataplane/base/assert.h"
#include "dataplane/runtime/error.h"
#include "dataplane/runtime/timeout.h"
#include "dataplane/runtime/timer.h"

namespace sarsen::nbd {
namespace {

// After an accept that failed for want of descriptors or memory.
constexpr Duration kAcceptRetry = milliseconds(100);

}  // namespace

Server::Server(const Env& env, Exports& exports, ServerLimits limits)
    : env_(env),
      exports_(exports),
      limits_(limits),
      bytes_(env.executor, limits.bytes_in_flight_max, limits.connections_max),
      stopping_(env.executor),
      background_(env.executor),
      connections_(env.executor) {
  SARSEN_ASSERT(limits.bytes_in_flight_max >= kBudgetBytesMin, "every request must be able to run");
}

Result<Address> Server::listen(Address address) {
  if (stopping_.cancelled()) return fail(make_error(RuntimeError::stopped));
  auto listener = env_.network.listen(std::move(address));
  if (!listener) return fail(std::move(listener).error());
  Address bound = (*listener)->address();
  listeners_.push_back(std::move(*listener));
  background_.spawn(accept_connections(listeners_.back().get()));
  if (!std::exchange(watching_, true)) background_.spawn(watch());
  return bound;
}

template <typename Visit>
void Server::for_each_session(Visit visit) {
  // No coroutine runs in here, so no session ends while its neighbours are visited.
  Session* session = sessions_.empty() ? nullptr : &sessions_.front();
  for (; session != nullptr; session = sessions_.next(*session)) visit(*session);
}

Task<void> Server::accept_connections(Listener* listener) {
  while (true) {
    auto connection = co_await listener->accept();
    if (stopping_.cancelled()) co_return;
    if (!connection) {
      if (is(connection.error(), RuntimeError::stopped)) co_return;
      if (!co_await pause(kAcceptRetry)) co_return;
    } else if (stats_.connections >= limits_.connections_max) {
      ++stats_.connections_refused;
      (*connection)->close();
    } else {
      ++stats_.connections_accepted;
      connections_.spawn(serve(std::move(*connection)));
    }
  }
}

Task<void> Server::serve(std::unique_ptr<Connection> connection) {
  Session session(env_, exports_, limits_.session, bytes_, std::move(connection));
  sessions_.push_back(session);
  ++stats_.connections;
  const auto result = co_await session.run();
  --stats_.connections;
  stats_.replies_done += session.replies_done();
  // A client that just closes its socket is no failure; many do.
  if (!result && !is(result.error(), RuntimeError::connection_reset)) {
    ++stats_.connections_failed;
    stats_.last_failure = result.error().message();
  }
}

// Looks at the sessions' deadlines, so that no session needs a timer of its own for each request.
Task<void> Server::watch() {
  while (co_await pause(limits_.check_interval)) {
    for_each_session([](Session& session) { session.check_progress(); });
  }
}

Task<bool> Server::pause(Duration duration) {
  const auto slept = co_await sleep_for(env_.clock, duration, stopping_.token());
  co_return slept.has_value();
}

Task<void> Server::stop() {
  stopping_.cancel(RuntimeError::stopped);
  for (const auto& listener : listeners_) listener->close();
  co_await background_.join();

  for_each_session([](Session& session) { session.shut_down(); });
  Timer give_up(env_.clock,
                [this] { for_each_session([](Session& session) { session.abort(); }); });
  give_up.arm(env_.clock.now() + limits_.drain_max);
  co_await connections_.join();
  listeners_.clear();
}

}  // namespace sarsen::nbd
