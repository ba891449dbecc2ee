#include "dataplane/wire/rpc_client.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "dataplane/base/assert.h"
#include "dataplane/runtime/error.h"
#include "dataplane/runtime/event.h"
#include "dataplane/wire/error.h"

namespace sarsen::wire {

// A call that waits for its answer. Lives in the caller's frame; what it names is touched only
// while it is in pending_, or while `receiving`.
struct RpcClient::Pending {
  explicit Pending(Executor& executor) : done(executor) {}

  MessageType type{};
  std::uint64_t data_bytes = 0;  // of the budget
  std::optional<Range> read_range;
  std::span<std::byte> into;

  bool receiving = false;  // data is on its way into `into`
  Result<void> result;
  std::vector<std::byte> body;  // of the reply, unless it was a read
  Event done;

  void finish(Result<void> outcome) {
    result = std::move(outcome);
    done.set();
  }
};

RpcClient::RpcClient(const Env& env, std::unique_ptr<Connection> connection,
                     FrameStreamLimits limits)
    : env_(env),
      stream_(env, std::move(connection), limits),
      calls_(env.executor),
      scope_(env.executor) {}

Task<Result<std::unique_ptr<RpcClient>>> RpcClient::connect(const Env* env, Address address,
                                                            Hello hello, Deadline deadline,
                                                            FrameStreamLimits limits) {
  auto connection = co_await env->network.connect(std::move(address));
  if (!connection) co_return fail(std::move(connection).error());
  std::unique_ptr<RpcClient> client(new RpcClient(*env, std::move(*connection), limits));
  client->stream_.start();

  FrameStream* const stream = &client->stream_;
  const auto give_up = [stream] { stream->close(); };
  Timer timer(env->clock, give_up);
  timer.arm(deadline.time());
  auto greeted = co_await client->say_hello(hello);
  const bool late = deadline.passed(env->clock);
  timer.disarm();
  if (!greeted) {
    co_await client->stream_.stop();
    if (late) co_return fail(sarsen::make_error(RuntimeError::timed_out, "hello"));
    co_return fail(std::move(greeted).error());
  }
  client->scope_.spawn(client->receive_replies());
  co_return client;
}

Task<Result<void>> RpcClient::say_hello(Hello hello) {
  hello.version_min = 1;
  hello.version_max = kVersion;
  FrameHeader header;
  header.type = MessageType::hello;
  SARSEN_CO_TRY(co_await stream_.send(header, encode(hello)));
  const auto frame = co_await stream_.receive();
  if (!frame) co_return fail(frame.error());
  if (!*frame) co_return fail(sarsen::make_error(RuntimeError::connection_reset, "at hello"));
  const FrameHeader& answer = (*frame)->header;
  if (!answer.reply || answer.type != MessageType::hello || answer.data_bytes != 0) {
    co_return fail(make_error(WireError::unexpected_frame, "instead of a hello"));
  }
  if (answer.error) {
    const auto error = decode<ErrorReply>((*frame)->body);
    co_return fail(error ? from_reply(*error) : error.error());
  }
  const auto reply = decode<HelloReply>((*frame)->body);
  if (!reply) co_return fail(reply.error());
  SARSEN_CO_TRY(accept_hello_reply(*reply, hello));
  server_ = *reply;
  constexpr std::size_t kAnyNumberWaits = std::numeric_limits<std::size_t>::max();
  operations_ = std::make_unique<Semaphore>(env_.executor, server_.operations_max, kAnyNumberWaits);
  data_bytes_ = std::make_unique<Semaphore>(env_.executor, server_.data_bytes_max, kAnyNumberWaits);
  co_return Result<void>();
}

Task<void> RpcClient::stop() {
  operations_->close();
  data_bytes_->close();
  co_await stream_.stop();
  co_await scope_.join();
  co_await calls_.close();
}

// ----------------------------------------------------------------------------------------- calls

Task<Result<Changed>> RpcClient::write(WriteRequest request, std::span<const std::byte> data,
                                       CallOptions options) {
  request.checksums.clear();
  append_checksums(request.range, data, request.checksums);
  Pending pending(env_.executor);
  pending.type = MessageType::write;
  pending.data_bytes = data.size();
  SARSEN_CO_TRY(co_await exchange(&pending, encode(request), data, options));
  co_return decode<Changed>(pending.body);
}

Task<Result<void>> RpcClient::read(ReadRequest request, std::span<std::byte> into,
                                   CallOptions options) {
  SARSEN_ASSERT(into.size() == request.range.length, "the caller has room for the range");
  Pending pending(env_.executor);
  pending.type = MessageType::read;
  pending.data_bytes = into.size();
  pending.read_range = request.range;
  pending.into = into;
  co_return co_await exchange(&pending, encode(request), {}, options);
}

template <typename Request>
Task<Result<typename Request::Reply>> RpcClient::call(Request request, CallOptions options) {
  Pending pending(env_.executor);
  pending.type = Request::kType;
  SARSEN_CO_TRY(co_await exchange(&pending, encode(request), {}, options));
  auto reply = decode<typename Request::Reply>(pending.body);
  if constexpr (std::is_same_v<Request, StatusRequest>) {
    if (reply && !answers(*reply, request)) {
      co_return fail(make_error(WireError::malformed, "runs that do not fit the request"));
    }
  }
  co_return reply;
}

template Task<Result<PgHelloReply>> RpcClient::call(PgHello, CallOptions);
template Task<Result<Changed>> RpcClient::call(TrimRequest, CallOptions);
template Task<Result<Changed>> RpcClient::call(WriteZeroesRequest, CallOptions);
template Task<Result<Changed>> RpcClient::call(RemoveRequest, CallOptions);
template Task<Result<Changed>> RpcClient::call(BarrierRequest, CallOptions);
template Task<Result<StatusReply>> RpcClient::call(StatusRequest, CallOptions);

Task<Result<void>> RpcClient::exchange(Pending* pending, std::vector<std::byte> body,
                                       std::span<const std::byte> data, CallOptions options) {
  const auto call = calls_.hold();
  if (!call) co_return fail(call.error());
  CancelSource source(env_.executor);
  Timer timer(env_.clock, [&source] { source.cancel(RuntimeError::timed_out); });
  timer.arm(options.deadline.time());
  co_return co_await exchange_until(pending, std::move(body), data, options, source.token());
}

Task<Result<void>> RpcClient::exchange_until(Pending* pending, std::vector<std::byte> body,
                                             std::span<const std::byte> data, CallOptions options,
                                             CancelToken token) {
  const auto operation = co_await operations_->acquire(1, token);
  if (!operation) co_return fail(operation.error());
  const auto bytes = co_await data_bytes_->acquire(pending->data_bytes, token);
  if (!bytes) co_return fail(bytes.error());
  if (broken_) co_return fail(sarsen::make_error(RuntimeError::connection_reset, stream_.peer()));

  FrameHeader header;
  header.type = pending->type;
  header.tenant = options.tenant;
  header.trace = options.trace;
  header.traffic_class = options.traffic_class;
  header.request_id = ++last_request_id_;
  if (!options.deadline.is_never()) {
    const std::int64_t left_ns = options.deadline.remaining(env_.clock).value;
    header.deadline_us = static_cast<std::uint64_t>(std::max<std::int64_t>(left_ns / 1000, 1));
  }
  pending_.emplace(header.request_id, pending);
  const auto sent = co_await stream_.send(header, std::move(body), data, token);
  const auto result =
      co_await await_reply(pending, sent ? std::nullopt : std::optional(sent.error()), token);
  pending_.erase(header.request_id);
  co_return result;
}

// `send_error`: why there is nothing to wait for, unless the answer has come all the same.
Task<Result<void>> RpcClient::await_reply(Pending* pending, std::optional<Error> send_error,
                                          CancelToken token) {
  if (!send_error) {
    const auto in_time = co_await pending->done.wait(token);
    if (!in_time) send_error = in_time.error();
  }
  // I-WIRE-3. While the connection writes into the caller's memory it cannot be left: it ends or
  // stalls out.
  if (pending->receiving) co_await pending->done.wait();
  if (pending->done.is_set()) co_return pending->result;
  co_return fail(*send_error);
}

// --------------------------------------------------------------------------------------- replies

Task<void> RpcClient::receive_replies() {
  Error why = sarsen::make_error(RuntimeError::connection_reset, stream_.peer());
  while (true) {
    const auto frame = co_await stream_.receive();
    if (!frame) why = frame.error();
    if (!frame || !*frame) break;
    const auto taken = co_await take_reply(**frame);
    if (!taken) {
      why = taken.error();
      break;
    }
  }
  broken_ = true;
  stream_.close();
  fail_pending(why);
}

// An error means that the stream cannot be trusted any more.
Task<Result<void>> RpcClient::take_reply(ReceivedFrame frame) {
  const FrameHeader& header = frame.header;
  if (!header.reply || header.request_id == 0 || header.request_id > last_request_id_) {
    co_return fail(make_error(WireError::unexpected_frame));
  }
  const auto found = pending_.find(header.request_id);
  // Its caller has stopped waiting, or had its answer.
  if (found == pending_.end() || found->second->done.is_set())
    co_return co_await stream_.skip_data();
  Pending* const pending = found->second;
  if (header.type != pending->type) {
    co_return fail(make_error(WireError::unexpected_frame, "a reply of another type"));
  }
  if (!header.error && pending->read_range) {
    auto reply = decode<ReadReply>(frame.body);
    if (!reply) co_return fail(reply.error());
    if (!answers(*reply, *pending->read_range, header.data_bytes)) {
      co_return fail(make_error(WireError::malformed, "a read reply that does not fit"));
    }
    co_return co_await take_data(pending, std::move(*reply));
  }
  if (header.data_bytes != 0) co_return fail(make_error(WireError::malformed, "data in a reply"));
  if (header.error) {
    const auto error = decode<ErrorReply>(frame.body);
    if (!error) co_return fail(error.error());
    pending->finish(fail(from_reply(*error)));
  } else {
    pending->body.assign(frame.body.begin(), frame.body.end());
    pending->finish({});
  }
  co_return Result<void>();
}

Task<Result<void>> RpcClient::take_data(Pending* pending, ReadReply reply) {
  pending->receiving = true;
  Result<void> outcome;
  std::uint32_t at = 0;
  std::span<const std::uint32_t> sums = reply.checksums;
  for (const Run& run : reply.runs) {
    const auto into = pending->into.subspan(at, run.length);
    const Range part{pending->read_range->offset + at, run.length};
    at += run.length;
    if (!run.present) {
      std::memset(into.data(), 0, into.size());
      continue;
    }
    const auto received = co_await stream_.receive_data(into);
    if (!received) co_return received;
    const std::size_t count = checksum_count(part);
    if (!matches(part, into, sums.first(count))) {
      outcome = fail(make_error(RemoteError::bad_checksum, "data of a read"));
    }
    sums = sums.subspan(count);
  }
  pending->finish(std::move(outcome));
  co_return Result<void>();
}

void RpcClient::fail_pending(const Error& error) {
  for (const auto& [id, pending] : pending_) {
    if (!pending->done.is_set()) pending->finish(fail(error));
  }
}

}  // namespace sarsen::wire
