#include "dataplane/blockd/fuse/ring_channel.h"

#include <array>
#include <cerrno>

#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

#include "dataplane/base/assert.h"

namespace sarsen::fuse {
namespace {

// Has no state, so one serves all and outlives every channel.
struct RemovalCompletion final : RingCompletion {
  void complete(std::int32_t, std::uint32_t) override {}
};

}  // namespace

Task<void> RingChannel::wait_readable() {
  if (closed_) co_return;
  RingOperation poll(reactor_, [this](io_uring_sqe& entry) {
    io_uring_prep_poll_add(&entry, file_.descriptor(), POLLIN);
    file_.select(entry);
  });
  waiting_ = &poll;
  co_await poll;
  waiting_ = nullptr;
}

int RingChannel::receive(std::span<std::byte> into) {
  const ssize_t received = ::read(file_.descriptor(), into.data(), into.size());
  return received >= 0 ? static_cast<int>(received) : -errno;
}

int RingChannel::send(std::span<const std::span<const std::byte>> pieces) {
  std::array<iovec, 4> vectors{};
  SARSEN_ASSERT(pieces.size() <= vectors.size(), "an answer has few pieces");
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    vectors[i] = {const_cast<std::byte*>(pieces[i].data()), pieces[i].size()};
  }
  const ssize_t sent =
      ::writev(file_.descriptor(), vectors.data(), static_cast<int>(pieces.size()));
  return sent >= 0 ? 0 : errno;
}

void RingChannel::close() {
  if (closed_) return;
  closed_ = true;
  if (waiting_ == nullptr) return;
  // The poll completes for good; when its removal does is of no interest to anyone.
  static RemovalCompletion removal;
  reactor_.submit(removal, [this](io_uring_sqe& entry) {
    io_uring_prep_poll_remove(&entry, reinterpret_cast<std::uintptr_t>(waiting_));
  });
}

}  // namespace sarsen::fuse
