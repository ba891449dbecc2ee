#include "dataplane/client/object_caller.h"

#include <algorithm>
#include <utility>

#include "dataplane/runtime/error.h"
#include "dataplane/wire/error.h"

namespace sarsen {
namespace {

// Between two tries: doubles from the first to the second, minus up to half of it by chance.
constexpr Duration kRetryDelayFirst = milliseconds(2);
constexpr Duration kRetryDelayMax = milliseconds(500);

// What is left to do after an error of a try.
enum class Remedy : std::uint8_t {
  none,        // trying again gives the same
  again,       // as before, a little later
  newer_map,   // the map is behind, or the OSD's is
  reconnect,   // the connection is of no use any more
  make_space,  // when there is patience for it
  fence,       // this session is over
};

Remedy remedy_of(const Error& error) {
  using wire::RemoteError;
  if (&error.category() == &client_errors()) return Remedy::none;
  if (wire::is(error, RemoteError::fenced) || wire::is(error, RemoteError::stale_session)) {
    return Remedy::fence;
  }
  if (wire::is(error, RemoteError::stale_epoch) || wire::is(error, RemoteError::not_primary) ||
      wire::is(error, RemoteError::inactive) || is(error, RuntimeError::not_found)) {
    return Remedy::newer_map;
  }
  if (is(error, RuntimeError::no_space)) return Remedy::make_space;
  if (is(error, RuntimeError::overloaded) || wire::is(error, RemoteError::bad_checksum) ||
      wire::is(error, RemoteError::stopped)) {
    return Remedy::again;
  }
  // The end of the connection, silence, or a frame that cannot be.
  if (&error.category() == &wire::wire_errors() || is(error, RuntimeError::connection_reset) ||
      is(error, RuntimeError::connection_refused) || is(error, RuntimeError::stopped) ||
      is(error, RuntimeError::timed_out) || is(error, RuntimeError::address_invalid) ||
      is(error, RuntimeError::permission_denied) || is(error, RuntimeError::system)) {
    return Remedy::reconnect;
  }
  // A later version's word for "not now".
  return error.retryable() ? Remedy::again : Remedy::none;
}

wire::Hello hello_of(const Env& env, const ImageSessionOptions& options) {
  wire::Hello hello;
  hello.role = options.role;
  hello.shard = env.shard;
  hello.holder = options.holder;
  hello.session = options.session;
  return hello;
}

}  // namespace

struct ObjectCaller::Call {
  Call(ObjectCaller& owner, ObjectPart object_part, CallerPatience limits)
      : executor(owner.env_.executor), caller(owner), part(object_part), patience(limits) {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() {
    if (counted_as_waiting && !executor.abandoned()) --caller.waiting_;
  }
  void count_as_waiting() {
    if (std::exchange(counted_as_waiting, true)) return;
    ++caller.waiting_;
  }

  Executor& executor;  // beside the caller, because in a simulated crash it may be gone first
  ObjectCaller& caller;
  const ObjectPart part;
  const CallerPatience patience;
  std::optional<OperationIds::Operation> operation;  // of a change
  Route route;
  std::uint32_t tries = 0;
  std::optional<BootTime> no_space_since;
  bool counted_as_waiting = false;
};

ObjectCaller::ObjectCaller(const Env& env, MapSource& map, ImageSessionOptions options)
    : env_(env),
      map_(map),
      options_(options),
      ended_(env.executor),
      ids_(env.executor),
      calls_(env.executor),
      scope_(env.executor) {
  take_map(*map.current());
}

void ObjectCaller::start() {
  scope_.spawn(watch_map());
}

Task<void> ObjectCaller::stop() {
  ended_.cancel(RuntimeError::stopped);
  for (const auto& [osd, link] : links_) link->close();
  co_await calls_.close();
  for (const auto& [osd, link] : links_) co_await link->stop();
  co_await scope_.join();
}

// --------------------------------------------------------------------------------------- the map

Task<void> ObjectCaller::watch_map() {
  while (!ended_.cancelled()) {
    const MapEpoch seen = map_.current()->epoch;
    take_map(*map_.current());
    if (!co_await map_.wait_newer(seen, ended_.token())) co_return;
  }
}

// Maps only move forward and the pair was in one of them: when it is missing, it is gone for ever.
void ObjectCaller::take_map(const ClusterMap& map) {
  const ImageEntry* image = map.find_image(options_.image);
  const AttachmentEntry* attachment =
      image == nullptr ? nullptr : image->find_attachment(options_.holder, options_.attach_epoch);
  if (attachment == nullptr) return fence();
  image_ = *image;
  attachment_ = *attachment;
}

void ObjectCaller::fence() {
  if (ended_.cancelled()) return;
  fenced_ = true;
  ended_.cancel(RuntimeError::cancelled);
  // What waits for an answer ends now, and not when an OSD is in the mood.
  for (const auto& [osd, link] : links_) link->close();
}

Result<void> ObjectCaller::look_at_map(const ObjectPart& part, const ClusterMap& map) {
  take_map(map);
  if (ended_.cancelled()) return fail(end_error(ended_.token()));
  if (part.offset() + part.range.length > image_.size_bytes) {
    return fail(make_error(ClientError::out_of_range,
                           "up to byte " + std::to_string(part.offset() + part.range.length) +
                               " of an image of " + std::to_string(image_.size_bytes)));
  }
  return {};
}

Error ObjectCaller::end_error(CancelToken token) const {
  if (fenced_) return make_error(ClientError::fenced, "image " + image_.name);
  if (token.cancelled() && token.reason() == RuntimeError::timed_out) {
    return make_error(ClientError::timed_out, "image " + image_.name);
  }
  return make_error(ClientError::stopped);
}

// ----------------------------------------------------------------------------------- one operation

template <typename Reply, typename Send>
Task<Result<Reply>> ObjectCaller::until_answered(ObjectPart part, bool change,
                                                 CallerPatience patience, Send send) {
  const auto hold = calls_.hold();
  if (!hold) co_return fail(make_error(ClientError::stopped));
  Call call(*this, part, patience);
  if (change) call.operation.emplace(ids_);  // I-CLIENT-3
  while (true) {
    if (call.tries++ > 0) ++resent_;
    auto reply = co_await attempt<Reply>(&call, &send);
    if (reply) co_return reply;
    SARSEN_CO_TRY(co_await before_next(&call, reply.error()));
    if (change && env_.faults.planted("client.new_operation_id")) call.operation.emplace(ids_);
  }
}

template <typename Reply, typename Send>
Task<Result<Reply>> ObjectCaller::attempt(Call* call, Send* send) {
  call->route = {};
  auto route = co_await find_route(call);
  if (!route) co_return fail(route.error());
  SARSEN_CO_TRY(co_await greet(call, *route));
  // While we greeted, the connection may have gone. The map may have moved on too; the OSD decides
  // by its own.
  if (!route->link->has(route->connection.generation)) {
    co_return fail(sarsen::make_error(RuntimeError::connection_reset));
  }
  auto reply = co_await (*send)(*route, *call);
  if (reply) route->link->answered();
  co_return reply;
}

Task<Result<ObjectCaller::Route>> ObjectCaller::find_route(Call* call) {
  const std::shared_ptr<const ClusterMap> map = map_.current();
  call->route.map_epoch = map->epoch;
  SARSEN_CO_TRY(look_at_map(call->part, *map));
  const PoolEntry* pool = map->find_pool(image_.pool);
  if (pool == nullptr) co_return fail(wire::make_error(wire::RemoteError::inactive, "no pool"));
  const wire::PgNumber number = placement_group(*pool, image_, call->part.object);
  if (call->operation) call->operation->enter(number);
  if (number.value >= pool->groups.size() || !pool->groups[number.value].active ||
      pool->groups[number.value].in_sync.empty()) {
    co_return fail(wire::make_error(wire::RemoteError::inactive, "the group has no primary"));
  }
  const PgConfiguration& group = pool->groups[number.value];
  call->route.pg = {.pool = pool->id, .number = number, .epoch = group.epoch};
  call->route.link = &link_of(group.in_sync.front());
  auto connection = co_await call->route.link->connect(call->patience.token);
  if (!connection) co_return fail(connection.error());
  call->route.connection = *connection;
  co_return call->route;
}

// I-CLIENT-2. One hello at a time for each group.
Task<Result<void>> ObjectCaller::greet(Call* call, Route route) {
  auto& slot = greetings_[route.pg.number];
  if (!slot) slot = std::make_unique<Greeting>(env_.executor);
  Greeting& greeting = *slot;
  const auto said = [&] {
    return greeting.link == route.link && greeting.generation == route.connection.generation &&
           greeting.epoch == route.pg.epoch;
  };
  if (said() && !greeting.under_way) co_return Result<void>();
  while (greeting.under_way) {
    SARSEN_CO_TRY(co_await greeting.changed.wait(call->patience.token));
  }
  if (said()) co_return Result<void>();
  // While we waited for another's hello, the connection may have gone.
  if (!route.link->has(route.connection.generation)) {
    co_return fail(sarsen::make_error(RuntimeError::connection_reset));
  }
  greeting.under_way = true;
  auto reply = co_await route.connection.client->call(
      wire::PgHello{.pg = route.pg,
                    .image = options_.image,
                    .attachment = wire_attachment(),
                    .first_unacknowledged = ids_.first_unacknowledged(route.pg.number)},
      call_options(*call));
  greeting.under_way = false;
  if (reply) {
    greeting.link = route.link;
    greeting.generation = route.connection.generation;
    greeting.epoch = route.pg.epoch;
  }
  greeting.changed.notify_all();
  if (!reply) co_return fail(reply.error());
  co_return Result<void>();
}

Task<Result<void>> ObjectCaller::before_next(Call* call, Error error) {
  if (call->patience.token.cancelled()) co_return fail(end_error(call->patience.token));
  const Remedy remedy = remedy_of(error);
  if (remedy == Remedy::none) {
    if (is(error, RuntimeError::read_only)) {
      co_return fail(make_error(ClientError::read_only, std::string(error.detail())));
    }
    co_return fail(std::move(error));
  }
  if (remedy == Remedy::fence) {
    fence();
    co_return fail(end_error(call->patience.token));
  }
  if (remedy == Remedy::make_space) {
    if (!call->no_space_since) call->no_space_since = env_.clock.now();
    if (env_.clock.now() - *call->no_space_since >= options_.no_space_max) {
      co_return fail(std::move(error));
    }
  }
  call->count_as_waiting();
  if (remedy == Remedy::reconnect && call->route.link != nullptr &&
      call->route.connection.client != nullptr) {
    call->route.link->drop(call->route.connection.generation);
    co_return Result<void>();  // the link waits before it tries again
  }
  co_return co_await pause(call, remedy == Remedy::newer_map || remedy == Remedy::reconnect);
}

Task<Result<void>> ObjectCaller::pause(Call* call, bool for_newer_map) {
  const std::uint32_t doublings = std::min(call->tries - 1, 20u);
  const std::int64_t full = std::min(kRetryDelayMax.value, kRetryDelayFirst.value << doublings);
  const auto half = static_cast<std::uint64_t>(full) / 2;
  const Duration delay(full - static_cast<std::int64_t>(env_.random.next() % (half + 1)));
  const CancelToken token = call->patience.token;
  if (for_newer_map) {
    const MapEpoch seen = call->route.map_epoch;
    map_.suspect(seen);
    // A newer map is worth a try at once; without one the OSD may have caught up meanwhile.
    (void)co_await with_timeout(
        env_.clock, env_.executor, delay,
        [this, seen](CancelToken limit) { return map_.wait_newer(seen, limit); }, token);
  } else {
    (void)co_await sleep_for(env_.clock, delay, token);
  }
  if (token.cancelled()) co_return fail(end_error(token));
  co_return Result<void>();
}

// ---------------------------------------------------------------------------------- the operations

Task<Result<void>> ObjectCaller::read(ObjectPart part, std::span<std::byte> into,
                                      CallerPatience patience) {
  const auto send = [this, into](const Route& route, const Call& call) {
    return route.connection.client->read({.object = address(route, call.part),
                                          .range = call.part.range,
                                          .attachment = wire_attachment(),
                                          .generation = generation()},
                                         into, call_options(call));
  };
  co_return co_await until_answered<void>(part, false, patience, send);
}

Task<Result<void>> ObjectCaller::write(ObjectPart part, std::span<const std::byte> from,
                                       CallerPatience patience) {
  const auto send = [this, from](const Route& route, const Call& call) {
    wire::WriteRequest request;
    request.object = address(route, call.part);
    request.range = call.part.range;
    request.origin = {.attachment = wire_attachment(),
                      .operation = call.operation->id(),
                      .first_unacknowledged = ids_.first_unacknowledged(route.pg.number),
                      .generation = generation()};
    return route.connection.client->write(std::move(request), from, call_options(call));
  };
  auto changed = co_await until_answered<wire::Changed>(part, true, patience, send);
  if (!changed) co_return fail(changed.error());
  co_return Result<void>();
}

template <typename Request>
Task<Result<wire::Changed>> ObjectCaller::change(Request request, ObjectPart part,
                                                 CallerPatience patience) {
  const auto send = [this, request](const Route& route, const Call& call) {
    Request sent = request;
    sent.object = address(route, call.part);
    sent.range = call.part.range;
    sent.origin = {.attachment = wire_attachment(),
                   .operation = call.operation->id(),
                   .first_unacknowledged = ids_.first_unacknowledged(route.pg.number),
                   .generation = generation()};
    return route.connection.client->call(std::move(sent), call_options(call));
  };
  co_return co_await until_answered<wire::Changed>(part, true, patience, send);
}

Task<Result<void>> ObjectCaller::trim(ObjectPart part, CallerPatience patience) {
  auto changed = co_await change(wire::TrimRequest(), part, patience);
  if (!changed) co_return fail(changed.error());
  co_return Result<void>();
}

Task<Result<void>> ObjectCaller::write_zeroes(ObjectPart part, bool keep_allocated,
                                              CallerPatience patience) {
  wire::WriteZeroesRequest request;
  request.keep_allocated = keep_allocated;
  auto changed = co_await change(std::move(request), part, patience);
  if (!changed) co_return fail(changed.error());
  co_return Result<void>();
}

Task<Result<std::vector<wire::Run>>> ObjectCaller::status(ObjectPart part, std::uint32_t runs_max,
                                                          CallerPatience patience) {
  const auto send = [this, runs_max](const Route& route, const Call& call) {
    return route.connection.client->call(wire::StatusRequest{.object = address(route, call.part),
                                                             .range = call.part.range,
                                                             .attachment = wire_attachment(),
                                                             .generation = generation(),
                                                             .runs_max = runs_max},
                                         call_options(call));
  };
  auto reply = co_await until_answered<wire::StatusReply>(part, false, patience, send);
  if (!reply) co_return fail(reply.error());
  co_return std::move(reply->runs);
}

// ------------------------------------------------------------------------------------------ parts

OsdLink& ObjectCaller::link_of(wire::OsdId osd) {
  auto& link = links_[osd];
  if (!link) {
    wire::Hello hello = hello_of(env_, options_);
    hello.cluster = map_.current()->cluster;
    link = std::make_unique<OsdLink>(env_, map_, osd, hello);
    if (ended_.cancelled()) link->close();
  }
  return *link;
}

wire::ObjectAddress ObjectCaller::address(const Route& route, const ObjectPart& part) const {
  return {.pg = route.pg, .image = options_.image, .object = part.object};
}

wire::Attachment ObjectCaller::wire_attachment() const {
  return {.holder = options_.holder, .epoch = options_.attach_epoch, .session = options_.session};
}

wire::Generation ObjectCaller::generation() const {
  return {.branch = image_.branch, .snapshot = image_.snapshot_generation};
}

wire::CallOptions ObjectCaller::call_options(const Call& call) const {
  wire::CallOptions options;
  options.deadline = Deadline::after(env_.clock, options_.call_max).earlier(call.patience.deadline);
  options.tenant = options_.tenant;
  return options;
}

std::uint64_t ObjectCaller::reconnected() const {
  std::uint64_t count = 0;
  for (const auto& [osd, link] : links_) {
    count += link->connections_made() - std::min<std::uint64_t>(link->connections_made(), 1);
  }
  return count;
}

}  // namespace sarsen
