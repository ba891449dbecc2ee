#include "dataplane/replica/image_service.h"

#include <algorithm>
#include <utility>

#include "dataplane/runtime/error.h"
#include "dataplane/store/error.h"
#include "dataplane/wire/error.h"

namespace sarsen {

using wire::RemoteError;

Error to_remote(const Error& error) {
  if (is(error, StoreError::no_space)) return wire::make_error(RemoteError::no_space);
  if (is(error, StoreError::stopping)) return wire::make_error(RemoteError::stopped);
  switch (error.error_class()) {
    case ErrorClass::corrupt: return wire::make_error(RemoteError::corrupt, error.message());
    case ErrorClass::failed: return wire::make_error(RemoteError::io_error, error.message());
    default: return error;
  }
}

BlockRange blocks_of(wire::Range range) {
  const std::uint32_t first = range.offset / kBlockBytes;
  const std::uint32_t last = (range.offset + range.length - 1) / kBlockBytes;
  return {.first_block = first, .block_count = last - first + 1};
}

ImageService::ImageService(Env& env, MapSource& map, Store& store, OsdRun run,
                           ImageServiceLimits limits)
    : env_(env),
      map_(map),
      store_(store),
      run_(run),
      limits_(limits),
      locks_(env.executor),
      news_(env.executor),
      stopping_(env.executor),
      operations_(env.executor),
      purger_(env, map, store, *this, run, limits.purge),
      scope_(env.executor) {}

void ImageService::start() {
  purger_.start();
  scope_.spawn(follow_map());
}

Task<void> ImageService::stop() {
  stopping_.cancel(RuntimeError::stopped);
  co_await purger_.stop();
  co_await operations_.close();
  co_await scope_.join();
}

// --------------------------------------------------------------------------------------- the map

Task<void> ImageService::follow_map() {
  while (!stopping_.cancelled()) {
    const MapEpoch seen = map_.current()->epoch;
    forget_what_is_gone();
    purger_.look();
    news_.notify_all();
    if (!co_await map_.wait_newer(seen, stopping_.token())) co_return;
  }
}

void ImageService::forget_what_is_gone() {
  const ClusterMap& map = *map_.current();
  std::erase_if(groups_, [&](const auto& entry) {
    const auto& [pool_id, number] = entry.first;
    const PoolEntry* pool = map.find_pool(pool_id);
    return pool == nullptr || number.value >= pool->groups.size() ||
           !pool->groups[number.value].has_primary(run_.osd);
  });
  const auto is_attached = [&](const SessionKey& key) {
    const ImageEntry* image = map.find_image(key.image);
    return image != nullptr && image->find_attachment(key.holder, key.epoch) != nullptr;
  };
  for (const auto& [name, group] : groups_) group->sessions.forget_detached(is_attached);
}

MapEpoch ImageService::settled_epoch() {
  const MapEpoch newest = map_.current()->epoch;
  const MapEpoch settled = acting_.empty() ? newest : std::min(newest, acting_.begin()->first);
  settled_told_ = std::max(settled_told_, settled);
  return settled;
}

Task<Result<void>> ImageService::wait_news(MapEpoch settled, std::size_t purges,
                                           CancelToken token) {
  const auto came = [&] { return settled_epoch() > settled || purger_.done().size() != purges; };
  co_return co_await news_.wait_until(came, token);
}

void ImageService::change_ended(MapEpoch epoch) {
  const auto found = acting_.find(epoch);
  if (--found->second != 0) return;
  acting_.erase(found);
  if (epoch < map_.current()->epoch) news_.notify_all();
}

PgEpoch ImageService::epoch_of(const wire::PgAddress& pg) const {
  const PoolEntry* pool = map_.current()->find_pool(pg.pool);
  if (pool == nullptr || pg.number.value >= pool->groups.size()) return {};
  return pool->groups[pg.number.value].epoch;
}

// -------------------------------------------------------------------------------------- admission

AdmissionAnswer ImageService::ask(const ClusterMap& map, const AdmissionQuestion& question) const {
  AdmissionAnswer answer = examine(map, run_, question);
  if (answer.refusal && wire::is(*answer.refusal, RemoteError::fenced) &&
      env_.faults.planted("replica.accept_fenced")) {
    const ImageEntry* image = map.find_image(question.image);
    if (image->state == ImageState::ready) return {.image = image};
  }
  return answer;
}

Task<Result<std::shared_ptr<const ClusterMap>>> ImageService::admit(AdmissionQuestion question,
                                                                    Deadline deadline) {
  const Deadline until = deadline.earlier(Deadline::after(env_.clock, limits_.map_wait_max));
  while (true) {
    auto map = map_.current();
    AdmissionAnswer answer = ask(*map, question);
    if (!answer.refusal) co_return map;
    if (!answer.map_may_be_old || until.passed(env_.clock)) {
      co_return fail(*std::move(answer.refusal));
    }
    env_.faults.probe("replica.waits_for_map");
    map_.suspect(map->epoch);
    const MapEpoch seen = map->epoch;
    const auto wait = [this, seen](CancelToken token) { return map_.wait_newer(seen, token); };
    const auto newer =
        co_await with_deadline(env_.clock, env_.executor, until, wait, stopping_.token());
    if (!newer) co_return fail(*std::move(answer.refusal));
  }
}

// A connection speaks for the holder that said hello on it.
Result<void> ImageService::check_peer(const wire::CallContext& context,
                                      const wire::Attachment& attachment) const {
  if (context.holder == attachment.holder) return {};
  return fail(wire::make_error(RemoteError::bad_request, "the connection is of another holder"));
}

std::shared_ptr<LedGroup> ImageService::group_of(const wire::PgAddress& pg) {
  auto& group = groups_[{pg.pool, pg.number}];
  if (!group) group = std::make_shared<LedGroup>(env_, limits_.window_max);
  return group;
}

// ------------------------------------------------------------------------------ hello and barrier

Task<Result<wire::PgHelloReply>> ImageService::handle(wire::CallContext context,
                                                      wire::PgHello request) {
  const auto hold = operations_.hold();
  if (!hold) co_return fail(hold.error());
  SARSEN_CO_TRY(check_peer(context, request.attachment));
  const AdmissionQuestion question{
      .pg = request.pg, .image = request.image, .attachment = request.attachment};
  const auto admitted = co_await admit(question, context.deadline);
  if (!admitted) co_return fail(admitted.error());
  const SessionKey key{request.image, request.attachment.holder, request.attachment.epoch};
  const auto highest =
      group_of(request.pg)
          ->sessions.hello(key, request.attachment.session, request.first_unacknowledged);
  if (!highest) co_return fail(highest.error());
  co_return wire::PgHelloReply{.epoch = request.pg.epoch, .highest_operation = *highest};
}

Task<Result<wire::Changed>> ImageService::handle(wire::CallContext context,
                                                 wire::BarrierRequest request) {
  const auto hold = operations_.hold();
  if (!hold) co_return fail(hold.error());
  SARSEN_CO_TRY(check_peer(context, request.attachment));
  const AdmissionQuestion question{
      .pg = request.pg, .image = request.image, .attachment = request.attachment};
  const auto admitted = co_await admit(question, context.deadline);
  if (!admitted) co_return fail(admitted.error());
  const std::shared_ptr<LedGroup> group = group_of(request.pg);
  const SessionKey key{request.image, request.attachment.holder, request.attachment.epoch};
  SARSEN_CO_TRY(group->sessions.check(key, request.attachment.session));
  for (const auto& operation : group->sessions.under_way(key)) co_await operation->done.wait();
  co_return wire::Changed{.epoch = request.pg.epoch, .sequence = group->last().sequence};
}

}  // namespace sarsen
