#include "dataplane/wire/rpc_session.h"

#include <limits>
#include <utility>

#include "dataplane/base/assert.h"
#include "dataplane/runtime/error.h"
#include "dataplane/runtime/timer.h"
#include "dataplane/wire/codec.h"
#include "dataplane/wire/error.h"

namespace sarsen::wire {
namespace {

FrameHeader reply_header(const FrameHeader& request) {
  FrameHeader header;
  header.reply = true;
  header.type = request.type;
  header.tenant = request.tenant;
  header.request_id = request.request_id;
  header.trace = request.trace;
  header.traffic_class = request.traffic_class;
  return header;
}

template <typename Request>
PgAddress group_of(const Request& request) {
  if constexpr (requires { request.object; }) {
    return request.object.pg;
  } else {
    return request.pg;
  }
}

std::uint64_t data_length(const ReadReply& reply) {
  std::uint64_t length = 0;
  for (const Run& run : reply.runs) length += run.present ? run.length : 0;
  return length;
}

}  // namespace

RpcSession::RpcSession(const Env& env, RpcService& service, const ServerIdentity& identity,
                       FrameStreamLimits limits, Duration hello_max, Semaphore& server_bytes,
                       std::unique_ptr<Connection> connection)
    : env_(env),
      service_(service),
      identity_(identity),
      hello_max_(hello_max),
      server_bytes_(server_bytes),
      stream_(env, std::move(connection), limits),
      operations_(env.executor, identity.operations_max, 1),
      data_bytes_(env.executor, identity.data_bytes_max, 1),
      running_(env.executor),
      closed_(env.executor),
      scope_(env.executor) {
  SARSEN_ASSERT(identity.data_bytes_max >= kDataBytesMax, "every request must be able to run");
}

Task<Result<void>> RpcSession::run() {
  stream_.start();
  Timer give_up(env_.clock, [this] { stream_.close(); });
  give_up.arm(env_.clock.now() + hello_max_);
  auto result = co_await greet();
  give_up.disarm();
  if (result) {
    serving_ = true;
    result = co_await serve();
    serving_ = false;
  }
  // No more requests. Those under way end; their answers leave if the client still takes them.
  co_await running_.close();
  co_await scope_.join();
  co_await stream_.stop();
  co_return result;
}

void RpcSession::shut_down() {
  if (!serving_) return abort();
  scope_.spawn(close_when_drained());
}

Task<void> RpcSession::close_when_drained() {
  co_await running_.close();
  abort();
}

Task<Result<void>> RpcSession::greet() {
  const auto frame = co_await stream_.receive();
  if (!frame) co_return fail(frame.error());
  if (!*frame) co_return fail(sarsen::make_error(RuntimeError::connection_reset, "before hello"));
  const FrameHeader header = (*frame)->header;
  if (header.reply || header.type != MessageType::hello || header.data_bytes != 0) {
    co_return fail(make_error(WireError::unexpected_frame, "instead of a hello"));
  }
  const auto hello = decode<Hello>((*frame)->body);
  if (!hello) co_return fail(hello.error());
  const auto reply = accept_hello(*hello, identity_);
  if (!reply) {
    SARSEN_CO_TRY(co_await send_error(header, reply.error()));
    co_return fail(reply.error());
  }
  peer_ = *hello;
  co_return co_await stream_.send(reply_header(header), encode(*reply));
}

Task<Result<void>> RpcSession::serve() {
  while (true) {
    const auto frame = co_await stream_.receive();
    if (!frame) co_return fail(frame.error());
    if (!*frame) co_return Result<void>();
    SARSEN_CO_TRY(co_await take_request(**frame));
  }
}

// An error means that the connection cannot go on.
Task<Result<void>> RpcSession::take_request(ReceivedFrame frame) {
  const FrameHeader& header = frame.header;
  if (header.reply || header.request_id == 0) {
    co_return fail(make_error(WireError::unexpected_frame, "instead of a request"));
  }
  switch (header.type) {
    case MessageType::pg_hello: co_return co_await start<PgHello>(frame);
    case MessageType::read: co_return co_await start_read(frame);
    case MessageType::write: co_return co_await start_write(frame);
    case MessageType::trim: co_return co_await start<TrimRequest>(frame);
    case MessageType::write_zeroes: co_return co_await start<WriteZeroesRequest>(frame);
    case MessageType::remove: co_return co_await start<RemoveRequest>(frame);
    case MessageType::barrier: co_return co_await start<BarrierRequest>(frame);
    case MessageType::status: co_return co_await start<StatusRequest>(frame);
    case MessageType::hello: co_return fail(make_error(WireError::unexpected_frame, "a hello"));
  }
  Held held;
  SARSEN_CO_TRY(co_await reserve(0, &held));
  co_return co_await refuse(header, make_error(RemoteError::unsupported), std::move(held));
}

Task<Result<void>> RpcSession::reserve(std::uint64_t bytes, Held* held) {
  auto operation = co_await operations_.acquire(1, closed_.token());
  if (!operation) co_return fail(operation.error());
  held->operation = std::move(*operation);
  auto own = co_await data_bytes_.acquire(bytes, closed_.token());
  if (!own) co_return fail(own.error());
  held->data_bytes = std::move(*own);
  auto shared = co_await server_bytes_.acquire(bytes, closed_.token());
  if (!shared) co_return fail(shared.error());
  held->server_bytes = std::move(*shared);
  co_return Result<void>();
}

Task<Result<void>> RpcSession::refuse(FrameHeader header, Error error, Held held) {
  SARSEN_CO_TRY(co_await stream_.skip_data());
  scope_.spawn(answer_refused(header, std::move(error), std::move(held)));
  co_return Result<void>();
}

Task<void> RpcSession::answer_refused(FrameHeader header, Error error, Held held) {
  (void)held;  // until the answer has left
  (void)co_await send_error(header, std::move(error));
}

Task<Result<void>> RpcSession::send_error(FrameHeader request, Error error, PgEpoch epoch) {
  FrameHeader header = reply_header(request);
  header.error = true;
  co_return co_await stream_.send(header, encode(to_reply(error, epoch)));
}

CallContext RpcSession::context_of(const FrameHeader& header) const {
  CallContext context;
  context.holder = peer_.holder;
  context.session = peer_.session;
  context.role = peer_.role;
  context.traffic_class = header.traffic_class;
  context.tenant = header.tenant;
  context.trace = header.trace;
  // A span that does not fit is as good as none.
  constexpr std::uint64_t kLongest = std::numeric_limits<std::int64_t>::max() / 1000;
  if (header.deadline_us != 0 && header.deadline_us <= kLongest) {
    const auto span = microseconds(static_cast<std::int64_t>(header.deadline_us));
    context.deadline = Deadline::after(env_.clock, span);
  }
  return context;
}

// ---------------------------------------------------------------------- requests without data

template <typename Request>
Task<Result<void>> RpcSession::start(ReceivedFrame frame) {
  if (frame.header.data_bytes != 0) co_return fail(make_error(WireError::malformed, "data"));
  auto request = decode<Request>(frame.body);
  if (!request) co_return fail(request.error());
  Held held;
  SARSEN_CO_TRY(co_await reserve(0, &held));
  auto running = running_.hold();
  if (!running) co_return co_await refuse(frame.header, running.error(), std::move(held));
  scope_.spawn(
      run_request(frame.header, std::move(*request), std::move(held), std::move(*running)));
  co_return Result<void>();
}

template <typename Request>
Task<void> RpcSession::run_request(FrameHeader header, Request request, Held held,
                                   Gate::Holder running) {
  const PgAddress pg = group_of(request);
  const auto result = co_await service_.handle(context_of(header), std::move(request));
  if (result) {
    (void)co_await stream_.send(reply_header(header), encode(*result));
  } else {
    (void)co_await send_error(header, result.error(), service_.epoch_of(pg));
  }
  held = {};
  running.release();
}

// --------------------------------------------------------------------------- reads and writes

Task<Result<void>> RpcSession::start_read(ReceivedFrame frame) {
  if (frame.header.data_bytes != 0) co_return fail(make_error(WireError::malformed, "data"));
  const auto request = decode<ReadRequest>(frame.body);
  if (!request) co_return fail(request.error());
  Held held;
  SARSEN_CO_TRY(co_await reserve(request->range.length, &held));
  auto running = running_.hold();
  if (!running) co_return co_await refuse(frame.header, running.error(), std::move(held));
  scope_.spawn(run_read(frame.header, *request, std::move(held), std::move(*running)));
  co_return Result<void>();
}

Task<void> RpcSession::run_read(FrameHeader header, ReadRequest request, Held held,
                                Gate::Holder running) {
  const auto result = co_await service_.handle(context_of(header), request);
  if (result) {
    const std::uint64_t length = data_length(result->reply);
    SARSEN_ASSERT(answers(result->reply, request.range, length), "a service answers the question");
    (void)co_await stream_.send(reply_header(header), encode(result->reply),
                                result->data.span().first(length));
  } else {
    (void)co_await send_error(header, result.error(), service_.epoch_of(request.object.pg));
  }
  held = {};
  running.release();
}

Task<Result<void>> RpcSession::start_write(ReceivedFrame frame) {
  auto request = decode<WriteRequest>(frame.body);
  if (!request) co_return fail(request.error());
  if (frame.header.data_bytes != request->range.length) {
    co_return fail(make_error(WireError::malformed, "data that does not fill its range"));
  }
  Held held;
  SARSEN_CO_TRY(co_await reserve(request->range.length, &held));
  auto data = env_.buffers.allocate(request->range.length);
  if (!data) co_return co_await refuse(frame.header, data.error(), std::move(held));
  const auto into = data->span(0, request->range.length);
  SARSEN_CO_TRY(co_await stream_.receive_data(into));
  if (!matches(request->range, into, request->checksums)) {
    auto error = make_error(RemoteError::bad_checksum, "data of a write");
    co_return co_await refuse(frame.header, std::move(error), std::move(held));
  }
  auto running = running_.hold();
  if (!running) co_return co_await refuse(frame.header, running.error(), std::move(held));
  scope_.spawn(run_write(frame.header, std::move(*request), std::move(*data), std::move(held),
                         std::move(*running)));
  co_return Result<void>();
}

Task<void> RpcSession::run_write(FrameHeader header, WriteRequest request, Buffer data, Held held,
                                 Gate::Holder running) {
  const PgAddress pg = request.object.pg;
  const auto result =
      co_await service_.handle(context_of(header), std::move(request), std::move(data));
  if (result) {
    (void)co_await stream_.send(reply_header(header), encode(*result));
  } else {
    (void)co_await send_error(header, result.error(), service_.epoch_of(pg));
  }
  held = {};
  running.release();
}

}  // namespace sarsen::wire
