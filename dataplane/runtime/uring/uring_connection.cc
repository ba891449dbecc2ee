#include "dataplane/runtime/uring/uring_connection.h"

#include <algorithm>

#include <errno.h>
#include <limits.h>
#include <sys/socket.h>

namespace sarsen {
namespace {

// Marks a call as running for as long as it lives; two at a time are a bug of the caller.
class InCall {
 public:
  InCall(bool& flag, const char* rule) : flag_(flag) {
    SARSEN_ASSERT(!flag_, rule);
    flag_ = true;
  }
  ~InCall() { flag_ = false; }
  InCall(const InCall&) = delete;
  InCall& operator=(const InCall&) = delete;

 private:
  bool& flag_;
};

constexpr std::size_t kTransferBytesMax = kGiB;

// Drops `count` bytes from the front.
std::span<iovec> drop_front(std::span<iovec> vectors, std::size_t count) {
  while (!vectors.empty() && count >= vectors.front().iov_len) {
    count -= vectors.front().iov_len;
    vectors = vectors.subspan(1);
  }
  if (count > 0) {
    vectors.front().iov_base = static_cast<std::byte*>(vectors.front().iov_base) + count;
    vectors.front().iov_len -= count;
  }
  return vectors;
}

}  // namespace

UringConnection::UringConnection(Reactor& reactor, int descriptor, Address peer)
    : reactor_(reactor), file_(reactor, descriptor), peer_(std::move(peer)) {}

UringConnection::~UringConnection() {
  SARSEN_ASSERT(!receiving_ && !sending_, "a connection outlives the calls on it");
}

void UringConnection::close() {
  if (std::exchange(closed_, true)) return;
  // Ends what is in flight, and tells the peer at once. It may be gone already.
  shutdown(file_.descriptor(), SHUT_RDWR);
}

Unexpected UringConnection::reset() const {
  return fail(make_error(RuntimeError::connection_reset, peer_));
}

Unexpected UringConnection::failure(const char* verb, int errno_value) const {
  if (closed_) return reset();
  return fail(error_from_errno(errno_value, std::string(verb) + " " + peer_));
}

Task<Result<std::size_t>> UringConnection::receive(std::span<std::byte> into) {
  if (closed_) co_return reset();
  const InCall call(receiving_, "one receive at a time");
  for (;;) {
    const RingResult got = co_await RingOperation(reactor_, [&](io_uring_sqe& entry) {
      io_uring_prep_recv(&entry, -1, into.data(), std::min(into.size(), kTransferBytesMax), 0);
      if (drained_) entry.ioprio |= IORING_RECVSEND_POLL_FIRST;
      file_.select(entry);
    });
    // close() may have come meanwhile; bytes that had arrived before it are dropped.
    if (closed_) co_return reset();
    drained_ = (got.flags & IORING_CQE_F_SOCK_NONEMPTY) == 0;
    if (got.value >= 0) co_return static_cast<std::size_t>(got.value);
    if (got.value != -EINTR && got.value != -EAGAIN) co_return failure("receive from", -got.value);
  }
}

Task<Result<void>> UringConnection::send(std::span<const std::span<const std::byte>> pieces) {
  if (closed_) co_return reset();
  const InCall call(sending_, "one send at a time");
  if (pieces.size() == 1) co_return co_await send_one(pieces.front());
  co_return co_await send_gathered(pieces);
}

Task<Result<void>> UringConnection::send_one(std::span<const std::byte> piece) {
  while (!piece.empty()) {
    const RingResult sent = co_await RingOperation(reactor_, [&](io_uring_sqe& entry) {
      io_uring_prep_send(&entry, -1, piece.data(), std::min(piece.size(), kTransferBytesMax),
                         MSG_NOSIGNAL | MSG_WAITALL);
      file_.select(entry);
    });
    if (closed_) co_return reset();
    if (sent.value == -EINTR || sent.value == -EAGAIN) continue;
    if (sent.value < 0) co_return failure("send to", -sent.value);
    piece = piece.subspan(static_cast<std::size_t>(sent.value));
  }
  co_return Result<void>();
}

Task<Result<void>> UringConnection::send_gathered(
    std::span<const std::span<const std::byte>> pieces) {
  vectors_.clear();
  for (const auto& piece : pieces) {
    if (!piece.empty()) vectors_.push_back({const_cast<std::byte*>(piece.data()), piece.size()});
  }
  std::span<iovec> left(vectors_);
  while (!left.empty()) {
    msghdr message{};
    message.msg_iov = left.data();
    message.msg_iovlen = std::min<std::size_t>(left.size(), IOV_MAX);
    const RingResult sent = co_await RingOperation(reactor_, [&](io_uring_sqe& entry) {
      io_uring_prep_sendmsg(&entry, -1, &message, MSG_NOSIGNAL | MSG_WAITALL);
      file_.select(entry);
    });
    if (closed_) co_return reset();
    if (sent.value == -EINTR || sent.value == -EAGAIN) continue;
    if (sent.value < 0) co_return failure("send to", -sent.value);
    left = drop_front(left, static_cast<std::size_t>(sent.value));
  }
  co_return Result<void>();
}

}  // namespace sarsen
