#include "dataplane/blockd/fuse/fuse_device.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <fcntl.h>

#include "dataplane/runtime/error.h"

namespace sarsen::fuse {
namespace {

// What `losetup` shows as the backing file: the image's name, as one component of a path.
std::string file_name_of(std::string name) {
  std::replace(name.begin(), name.end(), '/', '@');
  return name;
}

}  // namespace

Task<Result<void>> Device::map(MapOptions options) {
  auto mount = make_mount(context_.label_prefix + options.name);
  if (!mount) co_return fail(std::move(mount).error());
  name_ = options.name;
  state_.file_name = file_name_of(options.name);
  state_.sector_bytes = options.sector_bytes;
  state_.user = options.user;
  keeper::Descriptor connection(::fcntl(mount->connection.get(), F_DUPFD_CLOEXEC, 0));
  if (!connection) co_return fail(error_from_errno(errno, "duplicate /dev/fuse"));
  start_serving(std::move(connection), std::nullopt);
  auto outcome = co_await attach_and_keep(std::move(options), std::move(*mount));
  // The last descriptor of a connection that the keeper does not have closes with this one.
  if (!outcome) co_await stop();
  co_return outcome;
}

Task<Result<void>> Device::attach_and_keep(MapOptions options, Mount mount) {
  const LoopOptions loop_options{options.sector_bytes, target_.read_only(),
                                 context_.label_prefix + options.name};
  auto loop = co_await context_.env.blocking.run(
      [helper = &context_.helper, file = state_.file_name, loop_options,
       descriptor = mount.mount.get()] { return helper->attach(descriptor, file, loop_options); });
  if (!loop) co_return fail(std::move(loop).error());
  state_.loop_number = loop->number;
  state_.backing = loop->backing;
  // INIT came before the file could be opened.
  SARSEN_ASSERT(server_->negotiated().has_value(), "a file is opened after INIT");
  state_.negotiated = *server_->negotiated();

  const std::array<int, 2> descriptors{mount.connection.get(), mount.mount.get()};
  auto kept = co_await context_.env.blocking.run(
      [keeper = &context_.keeper, name = name_, number = mount.number, bytes = encode(state_),
       descriptors] { return keeper->put(name, keeper::kKindFuse, number, bytes, descriptors); });
  if (!kept) {
    (void)co_await context_.env.blocking.run(
        [keeper = &context_.keeper, helper = &context_.helper, name = name_, state = state_] {
          (void)keeper->drop(name);
          return helper->detach(state.loop_number, state.backing);
        });
    co_return fail(std::move(kept).error());
  }
  mount_ = std::move(mount.mount);
  co_return Result<void>();
}

Task<Result<void>> Device::take_over(keeper::Held held) {
  auto state = decode_device_state(held.state);
  const std::size_t descriptors = held.failed ? 0 : 2;
  if (!state || held.kind != keeper::kKindFuse || held.descriptors.size() != descriptors) {
    co_return fail(make_error(RuntimeError::bad_argument, "not a FUSE device: " + held.name));
  }
  name_ = held.name;
  state_ = std::move(*state);
  if (held.failed) {
    ended_ = Result<End>(End::aborted);
    co_return Result<void>();
  }
  mount_ = std::move(held.descriptors[1]);
  start_serving(std::move(held.descriptors[0]), state_.negotiated);
  co_return Result<void>();
}

void Device::start_serving(keeper::Descriptor connection, std::optional<Negotiated> negotiated) {
  channel_ = std::make_unique<RingChannel>(context_.reactor, std::move(connection));
  ServerOptions options;
  options.file_name = state_.file_name;
  options.negotiated = negotiated;
  server_ = std::make_unique<Server>(context_.env, *channel_, target_, std::move(options));
  serving_.spawn(serve());
}

Task<void> Device::serve() {
  ended_ = co_await server_->serve();
}

Task<Result<void>> Device::resize() {
  if (ended_) co_return fail(make_error(RuntimeError::device_gone, name_));
  server_->announce_size();
  co_return co_await context_.env.blocking.run(
      [helper = &context_.helper, mount = mount_.get(), state = state_] {
        return helper->resize(mount, state.file_name, state.loop_number, state.backing);
      });
}

Task<Result<void>> Device::unmap() {
  auto outcome = co_await context_.env.blocking.run(
      [helper = &context_.helper, keeper = &context_.keeper, name = name_, state = state_] {
        auto detached = helper->detach(state.loop_number, state.backing);
        return detached ? keeper->drop(name) : detached;
      });
  if (!outcome) co_return outcome;
  co_await stop();
  mount_.reset();
  channel_.reset();
  co_return outcome;
}

Task<void> Device::stop() {
  if (server_) server_->stop();
  co_await serving_.join();
}

}  // namespace sarsen::fuse
