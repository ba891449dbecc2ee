#include "dataplane/blockd/image_target.h"

#include <utility>

#include "dataplane/base/assert.h"
#include "dataplane/runtime/error.h"

namespace sarsen::blockd {

void ImageTarget::serve(BlockTarget& session) {
  SARSEN_ASSERT(session_ == nullptr, "a target has one session");
  if (ended_) return;
  session_ = &session;
  changed_.notify_all();
}

void ImageTarget::end(Error error) {
  size_bytes_ = size_bytes();
  session_ = nullptr;
  if (!ended_) ended_ = std::move(error);
  changed_.notify_all();
}

void ImageTarget::leave() {
  end(make_error(RuntimeError::cancelled, "this server ends"));
}

std::uint64_t ImageTarget::size_bytes() const {
  return session_ != nullptr ? session_->size_bytes() : size_bytes_;
}

template <typename Value, typename Call>
Task<Result<Value>> ImageTarget::forward(Call call) {
  if (session_ != nullptr) return call(*session_);
  return forward_later<Value>(std::move(call));
}

template <typename Value, typename Call>
Task<Result<Value>> ImageTarget::forward_later(Call call) {
  co_await changed_.wait_until([this] { return session_ != nullptr || ended_.has_value(); });
  if (ended_) co_return fail(*ended_);
  co_return co_await call(*session_);
}

Task<Result<void>> ImageTarget::read(std::uint64_t offset, std::span<std::byte> into) {
  return forward<void>([=](BlockTarget& session) { return session.read(offset, into); });
}

Task<Result<void>> ImageTarget::write(std::uint64_t offset, std::span<const std::byte> from) {
  return forward<void>([=](BlockTarget& session) { return session.write(offset, from); });
}

Task<Result<void>> ImageTarget::trim(std::uint64_t offset, std::uint64_t length) {
  return forward<void>([=](BlockTarget& session) { return session.trim(offset, length); });
}

Task<Result<void>> ImageTarget::write_zeroes(std::uint64_t offset, std::uint64_t length,
                                             bool keep_allocated) {
  return forward<void>(
      [=](BlockTarget& session) { return session.write_zeroes(offset, length, keep_allocated); });
}

Task<Result<void>> ImageTarget::flush() {
  return forward<void>([](BlockTarget& session) { return session.flush(); });
}

Task<Result<std::vector<BlockStatus>>> ImageTarget::status(std::uint64_t offset,
                                                           std::uint64_t length,
                                                           std::uint32_t runs_max) {
  return forward<std::vector<BlockStatus>>(
      [=](BlockTarget& session) { return session.status(offset, length, runs_max); });
}

}  // namespace sarsen::blockd
