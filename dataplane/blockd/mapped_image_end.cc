// How an image on this node ends: made to fail, unmapped, or left to the next blockd.
#include <string>
#include <utility>

#include "dataplane/blockd/mapped_image.h"
#include "dataplane/runtime/timeout.h"

namespace sarsen::blockd {
namespace {

constexpr Duration kDetachRetry = seconds(10);
// What is in flight when this server ends may end within this time; the rest is left to the next.
constexpr Duration kStopGrace = milliseconds(300);
constexpr Duration kStopChangeMax = seconds(5);

Task<Result<Units>> acquire(Semaphore* semaphore, CancelToken token) {
  co_return co_await semaphore->acquire(1, token);
}

}  // namespace

// ------------------------------------------------------------------------ fail and unmap

Task<Result<void>> MappedImage::fail() {
  if (detaching_) co_return Result<void>();
  failed_ = true;
  detail_ = "failed by command";
  target_->end(make_error(BlockdError::failed, state_.name));
  auto failed = co_await in_keeper(
      [name = state_.name](fuse::KeeperLink& keeper) { return keeper.fail(name); });
  // The keeper ends FUSE connections; of an export it only remembers that it failed.
  const bool marked = !failed && &failed.error().category() == &keeper::keeper_errors() &&
                      failed.error().code() == static_cast<int>(keeper::KeeperError::unsupported);
  if (marked) failed = {};
  context_.log.warning("failed by command");
  const auto turn = co_await changes_.acquire(1);
  if (!turn) co_return sarsen::fail(turn.error());
  if (held_) SARSEN_CO_TRY(co_await continue_frontend());
  co_await close_session();
  co_return failed;
}

Task<Result<void>> MappedImage::unmap(bool force) {
  if (force && !failed_ && !detaching_) SARSEN_CO_TRY(co_await fail());
  const auto turn = co_await changes_.acquire(1);
  if (!turn) co_return sarsen::fail(turn.error());
  if (!detaching_) {
    SARSEN_CO_TRY(co_await end_frontend(force));
    detaching_ = true;
    target_->end(make_error(BlockdError::not_mapped, state_.name));
    co_await close_session();
    // So that the next blockd tells the mon, should this one not live to do it.
    (void)co_await in_keeper(
        [name = state_.name, bytes = encode(state_)](fuse::KeeperLink& keeper) {
          return keeper.put(name, kKindDetach, 0, bytes, {});
        });
  }
  if (auto detached = co_await tell_detached(); !detached) {
    detail_ = detached.error().message();
    if (!std::exchange(detach_scheduled_, true)) background_.spawn(detach_later());
    co_return detached;
  }
  stopping_.cancel(RuntimeError::stopped);
  co_await background_.join();
  context_.log.info("unmapped");
  co_return Result<void>();
}

Task<Result<void>> MappedImage::end_frontend(bool force) {
  if (held_) {
    co_return sarsen::fail(make_error(BlockdError::waiting, state_.name + ": " + detail_));
  }
  if (device_) {
    if (auto ended = co_await device_->unmap(); !ended) {
      // What the helper says when somebody has it open (loop_device.h).
      const bool open = ended.error().message().find("is still open") != std::string::npos;
      if (!open) co_return ended;
      co_return sarsen::fail(make_error(
          BlockdError::in_use, device_path() + " of " + state_.name +
                                   " is open or mounted: unmount it first" +
                                   (failed_ ? "" : ", or force it to end with I/O errors")));
    }
    device_.reset();
    co_return Result<void>();
  }
  const auto connections = static_cast<std::uint32_t>(target_.use_count() - 1);
  if (connections > 0 && !force) {
    co_return sarsen::fail(
        make_error(BlockdError::in_use,
                   std::to_string(connections) + " NBD clients are connected to " + state_.name));
  }
  co_return Result<void>();
}

// Returns when this node can write nowhere any more.
Task<Result<void>> MappedImage::tell_detached() {
  const DetachRequest request{state_.image, state_.holder, state_.attach_epoch, false};
  const auto detached =
      co_await in_mon([request](MonApi& mon) { return mon.detach_image(request); });
  // An image that is gone has no attachments.
  if (detached || is(detached.error(), MonError::not_found)) {
    co_return co_await in_keeper(
        [name = state_.name](fuse::KeeperLink& keeper) { return keeper.drop(name); });
  }
  co_return sarsen::fail(detached.error());
}

Task<void> MappedImage::detach_later() {
  while (co_await sleep_for(env_.clock, kDetachRetry, stopping_.token())) {
    const auto turn = co_await changes_.acquire(1, stopping_.token());
    if (!turn) co_return;
    const auto detached = co_await tell_detached();
    if (detached) break;
    detail_ = detached.error().message();
  }
  gone_ = !stopping_.cancelled();
}

// ---------------------------------------------------------------------------------- stop

Task<void> MappedImage::leave_after_grace(CancelToken done) {
  (void)co_await sleep_for(env_.clock, kStopGrace, done);
  target_->leave();
  co_await close_session();
}

Task<void> MappedImage::leave() {
  CancelSource done(env_.executor);
  Scope leaving(env_.executor);
  leaving.spawn(leave_after_grace(done.token()));
  if (device_) co_await device_->stop();
  // Connections of NBD clients have until the grace is over.
  if (device_ || target_.use_count() == 1) done.cancel();
  co_await leaving.join();
}

Task<void> MappedImage::stop() {
  stopping_.cancel(RuntimeError::stopped);
  // A change in progress comes to its end, which needs the device served; but not for long.
  const auto turn = co_await with_timeout(
      env_.clock, env_.executor, kStopChangeMax,
      [changes = &changes_](CancelToken token) { return acquire(changes, token); });
  co_await leave();
  co_await background_.join();
  // A session that was being opened meanwhile.
  co_await close_session();
}

}  // namespace sarsen::blockd
