#include "dataplane/runtime/uring/uring_network.h"

#include <errno.h>
#include <sys/socket.h>

#include "dataplane/runtime/uring/ring_operation.h"
#include "dataplane/runtime/uring/socket_address.h"
#include "dataplane/runtime/uring/uring_connection.h"
#include "dataplane/runtime/uring/uring_listener.h"

namespace sarsen {
namespace {

constexpr std::int64_t kNanosecondsPerSecond = 1'000'000'000;

// A connect with its time limit, both in the awaiting frame.
class ConnectOperation final : public RingCompletion {
 public:
  ConnectOperation(Reactor& reactor, int descriptor, const SocketAddress& address, Duration limit)
      : reactor_(reactor), descriptor_(descriptor), address_(address) {
    limit_.tv_sec = limit.value / kNanosecondsPerSecond;
    limit_.tv_nsec = limit.value % kNanosecondsPerSecond;
  }
  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> waiter) {
    waiter_ = waiter;
    reactor_.submit_with_timeout(*this, limit_, [&](io_uring_sqe& entry) {
      io_uring_prep_connect(&entry, descriptor_, address_.get(), address_.size);
    });
  }
  // 0, or an errno value. A connect that has to sleep in the kernel is cancelled with EINTR.
  int await_resume() const {
    return result_ == -ECANCELED || result_ == -EINTR ? ETIMEDOUT : -result_;
  }
  void complete(std::int32_t result, std::uint32_t) override {
    result_ = result;
    reactor_.resume(waiter_);
  }

 private:
  Reactor& reactor_;
  int descriptor_;
  const SocketAddress& address_;
  __kernel_timespec limit_{};
  std::coroutine_handle<> waiter_;
  int result_ = 0;
};

}  // namespace

Result<std::unique_ptr<Listener>> UringNetwork::listen(Address address) {
  const auto parsed = parse_address(address);
  if (!parsed) return fail(parsed.error());
  return UringListener::open(reactor_, *parsed, options_.listen_backlog);
}

Task<Result<std::unique_ptr<Connection>>> UringNetwork::connect(Address address) {
  const auto parsed = parse_address(address);
  if (!parsed) co_return fail(parsed.error());
  const int descriptor = socket(parsed->family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) co_return fail(error_from_errno(errno, "make a socket"));
  auto connection = std::make_unique<UringConnection>(reactor_, descriptor, address);
  set_connection_options(descriptor, *parsed);
  const int error =
      co_await ConnectOperation(reactor_, descriptor, *parsed, options_.connect_timeout);
  if (error != 0) co_return fail(error_from_errno(error, "connect to " + address));
  co_return std::unique_ptr<Connection>(std::move(connection));
}

std::unique_ptr<Connection> adopt_connection(Reactor& reactor, int descriptor) {
  SocketAddress peer;
  peer.size = sizeof(peer.storage);
  if (getpeername(descriptor, peer.get(), &peer.size) != 0) peer = {};
  set_connection_options(descriptor, peer);
  return std::make_unique<UringConnection>(reactor, descriptor, format_address(peer));
}

}  // namespace sarsen
