// Awaiting one ring submission from a coroutine, and files that the ring knows.
#pragma once

#include <coroutine>
#include <cstdint>
#include <utility>

#include <unistd.h>

#include "dataplane/runtime/uring/reactor.h"

namespace sarsen {

struct RingResult {
  std::int32_t value = 0;   // a count, or a negative errno
  std::uint32_t flags = 0;  // IORING_CQE_F_*
};

// `co_await RingOperation(reactor, [&](io_uring_sqe& entry) {...})` gives a RingResult. Lives in
// the awaiting frame, which must not die before it completed.
template <typename Prepare>
class RingOperation final : public RingCompletion {
 public:
  RingOperation(Reactor& reactor, Prepare prepare)
      : reactor_(reactor), prepare_(std::move(prepare)) {}
  RingOperation(const RingOperation&) = delete;
  RingOperation& operator=(const RingOperation&) = delete;

  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> waiter) {
    waiter_ = waiter;
    reactor_.submit(*this, prepare_);
  }
  RingResult await_resume() const { return result_; }

  void complete(std::int32_t result, std::uint32_t flags) override {
    result_ = {result, flags};
    reactor_.resume(waiter_);
  }

 private:
  Reactor& reactor_;
  Prepare prepare_;
  std::coroutine_handle<> waiter_;
  RingResult result_;
};

// Owns a descriptor and its slot in the ring's file table. Created and destroyed on the shard.
class RingFile {
 public:
  RingFile(Reactor& reactor, int descriptor)
      : reactor_(&reactor), descriptor_(descriptor), slot_(reactor.register_file(descriptor)) {}
  RingFile(RingFile&& other) noexcept
      : reactor_(other.reactor_),
        descriptor_(std::exchange(other.descriptor_, -1)),
        slot_(std::exchange(other.slot_, -1)) {}
  RingFile& operator=(RingFile&&) = delete;
  ~RingFile() {
    if (descriptor_ < 0) return;
    reactor_->unregister_file(slot_);
    close(descriptor_);
  }

  int descriptor() const { return descriptor_; }
  // Makes a prepared entry work on this file.
  void select(io_uring_sqe& entry) const {
    entry.fd = slot_ >= 0 ? slot_ : descriptor_;
    if (slot_ >= 0) entry.flags |= IOSQE_FIXED_FILE;
  }

 private:
  Reactor* reactor_;
  int descriptor_;
  int slot_;
};

}  // namespace sarsen
