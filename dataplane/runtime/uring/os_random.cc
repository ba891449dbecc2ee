#include "dataplane/runtime/uring/os_random.h"

#include <utility>

#include <errno.h>
#include <sys/random.h>

namespace sarsen {

std::uint64_t OsRandom::next() {
  if (left_ == 0) {
    fill(std::as_writable_bytes(std::span(drawn_)));
    left_ = drawn_.size();
  }
  return std::exchange(drawn_[--left_], 0);
}

void OsRandom::fill(std::span<std::byte> into) {
  while (!into.empty()) {
    const ssize_t got = getrandom(into.data(), into.size(), 0);
    if (got > 0) into = into.subspan(static_cast<std::size_t>(got));
    SARSEN_ASSERT(got > 0 || errno == EINTR, "the kernel gives random bytes");
  }
}

}  // namespace sarsen
