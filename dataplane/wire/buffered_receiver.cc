#include "dataplane/wire/buffered_receiver.h"

#include <algorithm>
#include <cstring>

#include "dataplane/runtime/error.h"

namespace sarsen::wire {

Task<Result<bool>> BufferedReceiver::fill(std::size_t count) {
  SARSEN_ASSERT(count <= capacity_, "a message is asked for in pieces that fit the buffer");
  if (begin_ == end_) begin_ = end_ = 0;
  if (capacity_ - begin_ < count) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, available());
    end_ -= begin_;
    begin_ = 0;
  }
  while (available() < count) {
    const std::span<std::byte> room(buffer_.get() + end_, capacity_ - end_);
    const auto received = co_await connection_.receive(room);
    if (!received) co_return fail(received.error());
    if (*received == 0) {
      if (available() == 0) co_return false;
      co_return fail(make_error(RuntimeError::connection_reset, "in the middle of a message"));
    }
    end_ += *received;
  }
  co_return true;
}

Task<Result<void>> BufferedReceiver::read(std::span<std::byte> into) {
  const std::size_t ready = std::min(available(), into.size());
  if (ready > 0) std::memcpy(into.data(), take(ready).data(), ready);
  into = into.subspan(ready);
  while (!into.empty()) {
    const auto received = co_await connection_.receive(into);
    if (!received) co_return fail(received.error());
    if (*received == 0) {
      co_return fail(make_error(RuntimeError::connection_reset, "in the middle of a payload"));
    }
    into = into.subspan(*received);
  }
  co_return Result<void>();
}

Task<Result<void>> BufferedReceiver::skip(std::uint64_t count) {
  while (count > 0) {
    if (available() == 0) {
      const auto more = co_await fill(1);
      if (!more) co_return fail(more.error());
      if (!*more) {
        co_return fail(make_error(RuntimeError::connection_reset, "in the middle of a payload"));
      }
    }
    const auto step = std::min<std::uint64_t>(count, available());
    take(static_cast<std::size_t>(step));
    count -= step;
  }
  co_return Result<void>();
}

}  // namespace sarsen::wire
