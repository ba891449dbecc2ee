#include "dataplane/blockd/mapped_image.h"

#include <utility>

#include "dataplane/client/error.h"
#include "dataplane/runtime/error.h"
#include "dataplane/runtime/timeout.h"

namespace sarsen::blockd {
namespace {

// Until map and attachment are seen, when somebody waits for the answer; in tries that are short,
// because one cannot be cancelled.
constexpr Duration kOpenMax = seconds(30);
constexpr Duration kOpenTryMax = seconds(2);
constexpr Duration kRetry = seconds(1);
constexpr std::size_t kChangesWaitingMax = 64;

// Trying again cannot help: the image or the attachment is gone.
bool is_final(const Error& error) {
  return is(error, ClientError::fenced) || is(error, ClientError::not_found);
}

Task<Result<void>> wait_for(Event* event, CancelToken token) {
  co_return co_await event->wait(token);
}

Task<Result<void>> wait_for_map(MapSource* map, MapEpoch since, CancelToken token) {
  while (map->current()->epoch < since) {
    SARSEN_CO_TRY(co_await map->wait_newer(map->current()->epoch, token));
  }
  co_return Result<void>();
}

Env with_buffers(const Env& env, BufferPool& buffers) {
  return {env.shard, env.executor,    env.clock,    env.random, env.network,
          buffers,   env.cross_shard, env.blocking, env.faults};
}

}  // namespace

std::string_view name_of(ImagePhase phase) {
  switch (phase) {
    case ImagePhase::starting: return "starting";
    case ImagePhase::serving: return "serving";
    case ImagePhase::fenced: return "fenced";
    case ImagePhase::failed: return "failed";
    case ImagePhase::detaching: return "detaching";
  }
  return "unknown";
}

Result<ImageName> parse_image_name(const std::string& name) {
  const std::size_t slash = name.find('/');
  if (slash == 0 || slash == std::string::npos || slash + 1 == name.size() ||
      name.size() > kImageNameBytesMax) {
    return fail(
        make_error(RuntimeError::bad_argument, "image '" + name + "': expected POOL/IMAGE"));
  }
  return ImageName{name.substr(0, slash), name.substr(slash + 1)};
}

std::string nbd_uri(const std::string& image, const std::string& socket) {
  return "nbd+unix:///" + image + "?socket=" + socket;
}

MappedImage::MappedImage(const ImagesContext& context, ImageState state)
    : context_(context),
      state_(std::move(state)),
      share_(context.shares),
      env_(with_buffers(context.env, share_)),
      target_(std::make_shared<ImageTarget>(env_.executor, state_.size_bytes, state_.read_only())),
      stopping_(env_.executor),
      settled_(env_.executor),
      changes_(env_.executor, 1, kChangesWaitingMax),
      background_(env_.executor) {
  context_.log = context.log.with({{"image", state_.name}});
}

MappedImage::~MappedImage() = default;

// ------------------------------------------------------------------------------- session

Task<Result<void>> MappedImage::open_session(Duration open_max) {
  const auto number = co_await in_keeper([](fuse::KeeperLink& keeper) { return keeper.session(); });
  if (!number) co_return sarsen::fail(number.error());
  ImageSessionOptions options;
  options.image = state_.image;
  options.holder = state_.holder;
  options.attach_epoch = state_.attach_epoch;
  options.session = wire::SessionId(*number);
  options.open_max = open_max;
  auto session = co_await context_.sessions.open(options);
  if (!session) co_return sarsen::fail(std::move(session).error());
  session_ = std::move(*session);
  target_->serve(*session_);
  co_return Result<void>();
}

Task<void> MappedImage::close_session() {
  if (!session_) co_return;
  const auto session = std::move(session_);
  co_await session->stop();
}

// ---------------------------------------------------------------------------------- map

Task<Result<void>> MappedImage::map() {
  const auto turn = co_await changes_.acquire(1);
  if (!turn) co_return sarsen::fail(turn.error());
  auto outcome = co_await attach();
  if (outcome) {
    outcome = co_await open_and_make_frontend();
    if (!outcome) {
      device_.reset();
      target_->end(outcome.error());
      co_await close_session();
      const auto detached = co_await tell_detached();
      if (!detached) context_.log.warning("not detached", {{"error", detached.error()}});
    }
  }
  settled_.set();
  if (!outcome) co_return outcome;
  // stop() gave up waiting for this.
  if (stopping_.cancelled()) co_await leave();
  context_.log.info("mapped", {{"device", device_path()},
                               {"attach_epoch", state_.attach_epoch},
                               {"size_bytes", state_.size_bytes}});
  background_.spawn(watch());
  co_return outcome;
}

Task<Result<void>> MappedImage::open_and_make_frontend() {
  const BootTime give_up = env_.clock.now() + kOpenMax;
  SARSEN_CO_TRY(
      co_await with_timeout(env_.clock, env_.executor, kOpenMax,
                            [map = &context_.map, since = attached_since_](CancelToken token) {
                              return wait_for_map(map, since, token);
                            }));
  auto opened = co_await open_session(kOpenTryMax);
  while (!opened && opened.error().retryable() && env_.clock.now() < give_up) {
    SARSEN_CO_TRY(co_await sleep_for(env_.clock, milliseconds(100), stopping_.token()));
    opened = co_await open_session(kOpenTryMax);
  }
  if (!opened) co_return opened;
  state_.size_bytes = announced_bytes_ = target_->size_bytes();
  co_return co_await make_frontend();
}

Task<Result<void>> MappedImage::settled() {
  co_return co_await with_timeout(
      env_.clock, env_.executor, kOpenMax,
      [event = &settled_](CancelToken token) { return wait_for(event, token); });
}

// A new attachment takes the place of one that this node left behind in the same mode; one in
// another mode has to go first. Nothing here uses either: the image is not mapped.
Task<Result<void>> MappedImage::attach() {
  const auto name = parse_image_name(state_.name);
  if (!name) co_return sarsen::fail(name.error());
  const auto image = co_await in_mon([name = *name](MonApi& mon) { return mon.get_image(name); });
  if (!image) co_return sarsen::fail(image.error());
  for (const AttachmentEntry& left : image->attachments) {
    if (left.holder != context_.holder || left.mode == state_.mode) continue;
    const DetachRequest request{image->id, left.holder, left.epoch, false};
    const auto detached =
        co_await in_mon([request](MonApi& mon) { return mon.detach_image(request); });
    if (!detached) co_return sarsen::fail(detached.error());
  }
  const AttachRequest request{image->id, context_.holder, state_.mode, {}};
  const auto attached =
      co_await in_mon([request](MonApi& mon) { return mon.attach_image(request); });
  if (!attached) co_return sarsen::fail(attached.error());
  state_.image = attached->image.id;
  state_.holder = attached->attachment.holder;
  state_.attach_epoch = attached->attachment.epoch;
  state_.size_bytes = attached->image.size_bytes;
  attached_since_ = attached->epoch;
  co_return Result<void>();
}

Task<Result<void>> MappedImage::make_frontend() {
  if (state_.frontend == Frontend::nbd) {
    co_return co_await in_keeper(
        [name = state_.name, bytes = encode(state_)](fuse::KeeperLink& keeper) {
          return keeper.put(name, kKindNbd, 0, bytes, {});
        });
  }
  device_ = std::make_unique<fuse::Device>(device_context(), *target_);
  co_return co_await device_->map({state_.name, state_.sector_bytes, encode(state_)});
}

// ---------------------------------------------------------------------------- take over

void MappedImage::take_over(keeper::Held held) {
  detaching_ = held.kind == kKindDetach;
  failed_ = held.failed;
  held_ = std::move(held);
  if (detaching_) {
    detach_scheduled_ = true;
    background_.spawn(detach_later());
  } else {
    background_.spawn(serve_again());
  }
}

// Opens a session, however long that takes, and only then answers the kernel: what the predecessor
// left waits there.
Task<void> MappedImage::serve_again() {
  while (!failed_ && !fenced_ && !session_) {
    const auto opened = co_await open_session(kOpenTryMax);
    if (stopping_.cancelled()) co_return;
    if (opened) break;
    detail_ = opened.error().message();
    if (context_.map_confirmed() && is_final(opened.error())) {
      fenced_ = true;
      target_->end(opened.error());
      context_.log.error("fenced while no blockd ran", {{"error", opened.error()}});
      break;
    }
    context_.log.warning("waits for the cluster", {{"error", opened.error()}});
    if (!co_await sleep_for(env_.clock, kRetry, stopping_.token())) co_return;
  }
  {
    const auto turn = co_await changes_.acquire(1, stopping_.token());
    if (!turn) co_return;
    const auto served = co_await continue_frontend();
    settled_.set();
    if (!served) {
      detail_ = served.error().message();
      context_.log.error("cannot be taken over", {{"error", served.error()}});
      co_return;
    }
  }
  if (device_ && device_->ended() && !device_->ended()->has_value()) {
    // Without FUSE_NOTIFY_RESEND what was in flight would wait for ever: it fails.
    const Error why = device_->ended()->error();
    context_.log.error("cannot be served again", {{"error", why}});
    (void)co_await fail();
    detail_ = why.message();
    co_return;
  }
  if (!session_) co_return;
  detail_.clear();
  context_.log.info("taken over", {{"device", device_path()}});
  co_await watch();
}

Task<Result<void>> MappedImage::continue_frontend() {
  if (!held_) co_return Result<void>();
  auto held = *std::exchange(held_, std::nullopt);
  if (failed_) {
    held.failed = true;
    held.descriptors.clear();
    target_->end(make_error(BlockdError::failed, state_.name));
  }
  announced_bytes_ = state_.size_bytes;
  if (state_.frontend == Frontend::nbd) co_return Result<void>();
  device_ = std::make_unique<fuse::Device>(device_context(), *target_);
  auto taken = co_await device_->take_over(std::move(held));
  if (!taken) {
    device_.reset();
    co_return taken;
  }
  // It may have been resized since, by a predecessor that wrote nothing down.
  announced_bytes_ = co_await env_.blocking.run(
      [number = device_->state().loop_number] { return fuse::loop_size_bytes(number); });
  if (!session_) target_->assume_size(announced_bytes_);
  co_return taken;
}

// ------------------------------------------------------------------------- while mapped

Task<void> MappedImage::watch() {
  while (!stopping_.cancelled() && !failed_ && !fenced_) {
    if (!co_await context_.map.wait_newer(seen_, stopping_.token())) co_return;
    seen_ = context_.map.current()->epoch;
    if (co_await look_at_map()) continue;
    seen_ = MapEpoch(0);  // look again, whether or not the map changes
    if (!co_await sleep_for(env_.clock, kRetry, stopping_.token())) co_return;
  }
}

// False: to be tried again.
Task<bool> MappedImage::look_at_map() {
  if (detaching_) co_return true;
  const auto map = context_.map.current();
  const ImageEntry* image = map->find_image(state_.image);
  const bool attached =
      image != nullptr && image->find_attachment(state_.holder, state_.attach_epoch) != nullptr;
  if (!attached && !context_.map_confirmed()) co_return true;
  if (!attached || (session_ && session_->fenced())) {
    fenced_ = true;
    detail_ = image == nullptr ? "the image was removed" : "the attachment was revoked";
    target_->end(make_error(ClientError::fenced, state_.name));
    context_.log.error("fenced", {{"why", detail_}});
    co_return true;
  }
  if (image->size_bytes == announced_bytes_ || failed_) co_return true;
  const auto followed = co_await follow_size(image->size_bytes);
  if (!followed) context_.log.warning("not resized yet", {{"error", followed.error()}});
  co_return followed.has_value();
}

Task<Result<void>> MappedImage::follow_size(std::uint64_t size_bytes) {
  const auto turn = co_await changes_.acquire(1, stopping_.token());
  if (!turn) co_return sarsen::fail(turn.error());
  if (target_->size_bytes() != size_bytes) {
    co_return sarsen::fail(make_error(BlockdError::waiting, "the session has the old size"));
  }
  if (device_) SARSEN_CO_TRY(co_await device_->resize());
  announced_bytes_ = size_bytes;
  context_.log.info("resized", {{"size_bytes", size_bytes}});
  co_return Result<void>();
}

// -------------------------------------------------------------------------------- report

ImagePhase MappedImage::phase() const {
  if (detaching_) return ImagePhase::detaching;
  const bool aborted = device_ && device_->ended() && device_->ended()->has_value() &&
                       **device_->ended() == fuse::End::aborted;
  if (failed_ || aborted) return ImagePhase::failed;
  if (fenced_) return ImagePhase::fenced;
  return session_ ? ImagePhase::serving : ImagePhase::starting;
}

fuse::DeviceContext MappedImage::device_context() {
  return {env_, context_.reactor, context_.keeper, context_.helper, context_.label_prefix};
}

std::string MappedImage::device_path() const {
  if (device_) return device_->path();
  if (state_.frontend == Frontend::nbd) return nbd_uri(state_.name, context_.nbd_socket);
  return "";
}

ImageReport MappedImage::report() const {
  ImageReport report;
  report.state = state_;
  report.phase = phase();
  report.device = device_path();
  report.size_bytes = session_ ? session_->size_bytes() : announced_bytes_;
  report.detail = detail_;
  if (session_) report.stats = session_->stats();
  report.nbd_connections = static_cast<std::uint32_t>(target_.use_count() - 1);
  return report;
}

}  // namespace sarsen::blockd
