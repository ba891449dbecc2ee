#include "dataplane/wire/rpc_server.h"

#include <utility>

#include "dataplane/base/assert.h"
#include "dataplane/runtime/error.h"
#include "dataplane/runtime/timeout.h"
#include "dataplane/runtime/timer.h"

namespace sarsen::wire {
namespace {

// After an accept that failed for want of descriptors or memory.
constexpr Duration kAcceptRetry = milliseconds(100);

}  // namespace

RpcServer::RpcServer(const Env& env, RpcService& service, ServerIdentity identity,
                     RpcServerLimits limits)
    : env_(env),
      service_(service),
      identity_(identity),
      limits_(limits),
      data_bytes_(env.executor, limits.data_bytes_max, limits.connections_max),
      stopping_(env.executor),
      accepting_(env.executor),
      connections_(env.executor) {
  SARSEN_ASSERT(limits.data_bytes_max >= kDataBytesMax, "every request must be able to run");
}

Result<Address> RpcServer::listen(Address address) {
  if (stopping_.cancelled()) return fail(make_error(RuntimeError::stopped));
  auto listener = env_.network.listen(std::move(address));
  if (!listener) return fail(std::move(listener).error());
  Address bound = (*listener)->address();
  listeners_.push_back(std::move(*listener));
  accepting_.spawn(accept_connections(listeners_.back().get()));
  return bound;
}

Task<void> RpcServer::accept_connections(Listener* listener) {
  while (true) {
    auto connection = co_await listener->accept();
    if (stopping_.cancelled()) co_return;
    if (!connection) {
      if (is(connection.error(), RuntimeError::stopped)) co_return;
      const auto slept = co_await sleep_for(env_.clock, kAcceptRetry, stopping_.token());
      if (!slept) co_return;
    } else if (stats_.connections >= limits_.connections_max) {
      ++stats_.connections_refused;
      (*connection)->close();
    } else {
      ++stats_.connections_accepted;
      connections_.spawn(serve(std::move(*connection)));
    }
  }
}

Task<void> RpcServer::serve(std::unique_ptr<Connection> connection) {
  RpcSession session(env_, service_, identity_, limits_.stream, limits_.hello_max, data_bytes_,
                     std::move(connection));
  sessions_.push_back(session);
  ++stats_.connections;
  const auto result = co_await session.run();
  --stats_.connections;
  if (!result && !is(result.error(), RuntimeError::connection_reset)) {
    ++stats_.connections_failed;
    stats_.last_failure = result.error().message();
  }
}

template <typename Visit>
void RpcServer::for_each_session(Visit visit) {
  // No coroutine runs in here, so no session ends while its neighbours are visited.
  RpcSession* session = sessions_.empty() ? nullptr : &sessions_.front();
  for (; session != nullptr; session = sessions_.next(*session)) visit(*session);
}

Task<void> RpcServer::stop() {
  stopping_.cancel(RuntimeError::stopped);
  for (const auto& listener : listeners_) listener->close();
  co_await accepting_.join();
  for_each_session([](RpcSession& session) { session.shut_down(); });
  Timer give_up(env_.clock,
                [this] { for_each_session([](RpcSession& session) { session.abort(); }); });
  give_up.arm(env_.clock.now() + limits_.drain_max);
  co_await connections_.join();
  listeners_.clear();
}

}  // namespace sarsen::wire
