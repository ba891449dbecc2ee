// ImageTarget: what a frontend serves of an image, while the session behind it comes and goes.
//
// Until serve() operations wait; then they go to the session. end() makes all later ones answer an
// error at once, leave() with `cancelled`, so that a frontend leaves them to the next server. What
// the session has accepted ends when the session says so: whoever calls end() or leave() then stops
// the session.
//
// Shard      One.   Borrows the session, from serve() until it was stopped.
// Owned by   The image and, for as long as they last, the connections of its NBD clients.
#pragma once

#include <optional>

#include "dataplane/client/block_target.h"
#include "dataplane/runtime/condition.h"
#include "dataplane/runtime/executor.h"

namespace sarsen::blockd {

class ImageTarget final : public BlockTarget {
 public:
  // `size_bytes`: what is said before the session is there.
  ImageTarget(Executor& executor, std::uint64_t size_bytes, bool read_only)
      : size_bytes_(size_bytes), read_only_(read_only), changed_(executor) {}

  void serve(BlockTarget& session);
  // The first error stays.
  void end(Error error);
  void leave();
  // What size_bytes() says without a session.
  void assume_size(std::uint64_t bytes) { size_bytes_ = bytes; }
  bool ended() const { return ended_.has_value(); }

  std::uint64_t size_bytes() const override;
  bool read_only() const override { return read_only_; }
  Task<Result<void>> read(std::uint64_t offset, std::span<std::byte> into) override;
  Task<Result<void>> write(std::uint64_t offset, std::span<const std::byte> from) override;
  Task<Result<void>> trim(std::uint64_t offset, std::uint64_t length) override;
  Task<Result<void>> write_zeroes(std::uint64_t offset, std::uint64_t length,
                                  bool keep_allocated) override;
  Task<Result<void>> flush() override;
  Task<Result<std::vector<BlockStatus>>> status(std::uint64_t offset, std::uint64_t length,
                                                std::uint32_t runs_max) override;

 private:
  // In the usual case the session's own task, without a frame of ours around it.
  template <typename Value, typename Call>
  Task<Result<Value>> forward(Call call);
  template <typename Value, typename Call>
  Task<Result<Value>> forward_later(Call call);

  std::uint64_t size_bytes_;
  const bool read_only_;
  BlockTarget* session_ = nullptr;
  std::optional<Error> ended_;
  Condition changed_;
};

}  // namespace sarsen::blockd
