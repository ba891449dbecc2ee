#include "dataplane/blockd/nbd/nbd_session.h"

#include <array>
#include <cstring>
#include <utility>

#include "dataplane/base/assert.h"
#include "dataplane/blockd/nbd/nbd_error.h"
#include "dataplane/runtime/error.h"

namespace sarsen::nbd {
namespace {

// One send takes at most this many replies, so that the first of them is not held up for long.
constexpr std::size_t kRepliesPerSendMax = 64;

}  // namespace

Session::Session(const Env& env, Exports& exports, SessionLimits limits, Semaphore& server_bytes,
                 std::unique_ptr<Connection> connection)
    : env_(env),
      limits_(limits),
      server_bytes_(server_bytes),
      connection_(std::move(connection)),
      receiver_(*connection_, limits.receive_buffer_bytes),
      handshake_(exports),
      slots_(env.executor, limits.requests_in_flight_max, 1),
      bytes_(env.executor, limits.bytes_in_flight_max, 1),
      running_(env.executor),
      replies_(env.executor, limits.requests_in_flight_max),
      reply_left_(env.executor),
      scope_(env.executor) {
  SARSEN_ASSERT(limits.bytes_in_flight_max >= kPayloadBytesMax,
                "every request must be able to run");
  SARSEN_ASSERT(limits.receive_buffer_bytes >= kOptionBytesMax, "an option must fit the buffer");
}

Task<Result<void>> Session::run() {
  receive_deadline_ = env_.clock.now() + limits_.handshake_max;
  const auto agreed = co_await shake_hands();
  receive_deadline_.reset();
  Result<void> result;
  if (agreed && *agreed) {
    serving_ = true;
    scope_.spawn(write_replies());
    result = co_await read_requests();
    serving_ = false;
  } else if (!agreed) {
    result = fail(agreed.error());
  }
  // No more requests. Those in flight end, their replies leave if the client still takes them.
  co_await running_.close();
  replies_.close();
  co_await scope_.join();
  connection_->close();
  if (too_slow_) result = fail(make_error(NbdError::too_slow, connection_->peer()));
  co_return result;
}

void Session::shut_down() {
  if (!serving_) return abort();
  scope_.spawn(close_when_drained());
}

Task<void> Session::close_when_drained() {
  co_await running_.close();
  co_await reply_left_.wait_until([this] { return replies_unsent_ == 0; });
  connection_->close();
}

void Session::check_progress() {
  const BootTime now = env_.clock.now();
  const bool late = (receive_deadline_ && now >= *receive_deadline_) ||
                    (send_deadline_ && now >= *send_deadline_);
  if (!late) return;
  too_slow_ = true;
  connection_->close();
}

BootTime Session::deadline_for(std::uint64_t bytes) const {
  const std::uint64_t transfer_ms = bytes * 1000 / limits_.bytes_per_second_min;
  return env_.clock.now() + limits_.stall_max +
         Duration(static_cast<std::int64_t>(transfer_ms) * 1'000'000);
}

// ------------------------------------------------------------------------------------- handshake

// False when the client went, or asked to go, before it chose an export.
Task<Result<bool>> Session::shake_hands() {
  const auto greeting = Handshake::greeting();
  const std::array<std::span<const std::byte>, 1> pieces{greeting};
  SARSEN_CO_TRY(co_await send(pieces));
  const auto more = co_await receiver_.fill(kClientFlagsBytes);
  if (!more || !*more) co_return more;
  SARSEN_CO_TRY(
      handshake_.accept_client_flags(receiver_.take(kClientFlagsBytes).first<kClientFlagsBytes>()));

  for (std::uint32_t count = 0; count < limits_.options_max; ++count) {
    const auto header_there = co_await receiver_.fill(kOptionHeaderBytes);
    if (!header_there || !*header_there) co_return header_there;
    auto step = co_await next_option();
    if (!step) co_return fail(std::move(step).error());
    const std::array<std::span<const std::byte>, 1> reply{std::span(step->reply)};
    if (!step->reply.empty()) SARSEN_CO_TRY(co_await send(reply));
    if (step->next == HandshakeStep::Next::close) co_return false;
    if (step->next == HandshakeStep::Next::transmission) {
      negotiated_ = handshake_.take_negotiated();
      co_return true;
    }
  }
  co_return fail(make_error(NbdError::too_many_options, std::to_string(limits_.options_max)));
}

Task<Result<HandshakeStep>> Session::next_option() {
  const auto header =
      handshake_.parse_option(receiver_.take(kOptionHeaderBytes).first<kOptionHeaderBytes>());
  if (!header) co_return fail(header.error());
  if (header->length > kOptionBytesMax) {
    auto refusal = handshake_.refuse_long(*header);
    if (refusal) SARSEN_CO_TRY(co_await receiver_.skip(header->length));
    co_return refusal;
  }
  // The data is kept apart from the receive buffer, which may move while an export is opened.
  std::vector<std::byte> data(header->length);
  SARSEN_CO_TRY(co_await receiver_.read(data));
  co_return co_await handshake_.answer(*header, data);
}

// -------------------------------------------------------------------------------------- requests

Task<Result<void>> Session::read_requests() {
  while (true) {
    auto slot = co_await slots_.acquire(1);
    if (!slot) co_return fail(slot.error());
    if (receiver_.available() < kRequestBytes) {
      const auto more = co_await receiver_.fill(kRequestBytes);
      if (!more) co_return fail(more.error());
      if (!*more) co_return Result<void>();
    }
    const auto request = parse_request(receiver_.take(kRequestBytes).first<kRequestBytes>());
    if (!request) co_return fail(make_error(NbdError::bad_magic, "at the start of a request"));
    if (request->command == Command::disconnect) co_return Result<void>();

    Held held;
    held.slot = std::move(*slot);
    const Judgement judgement = judge(*request, negotiated_);
    if (judgement.acceptable()) {
      SARSEN_CO_TRY(co_await start(*request, std::move(held)));
    } else {
      SARSEN_CO_TRY(co_await refuse(*request, std::move(held), judgement));
    }
  }
}

// Answers without doing anything. An error means that the connection cannot go on.
Task<Result<void>> Session::refuse(Request request, Held held, Judgement judgement) {
  SARSEN_CO_TRY(co_await receiver_.skip(request.payload_bytes()));
  post(reply_outcome(request, negotiated_.structured_replies, judgement.error, judgement.sentence),
       std::move(held));
  co_return Result<void>();
}

Task<Result<void>> Session::start(Request request, Held held) {
  Buffer data;
  if (request.buffer_bytes() > 0) {
    auto buffer = co_await prepare_buffer(request, &held);
    if (!buffer) {
      const Judgement judgement{errno_of(buffer.error()), "no memory for this request"};
      co_return co_await refuse(request, std::move(held), judgement);
    }
    data = std::move(*buffer);
  }
  if (request.payload_bytes() > 0) {
    const auto into = data.span(0, request.length);
    if (receiver_.available() >= into.size()) {
      std::memcpy(into.data(), receiver_.take(into.size()).data(), into.size());
    } else {
      receive_deadline_ = deadline_for(into.size());
      const auto received = co_await receiver_.read(into);
      receive_deadline_.reset();
      if (!received) co_return fail(received.error());
    }
  }
  auto running = running_.hold();
  if (!running) {
    post(reply_outcome(request, negotiated_.structured_replies, Errno::shutdown,
                       "the server is stopping"),
         std::move(held));
    co_return Result<void>();
  }
  scope_.spawn(execute(request, std::move(data), std::move(held), std::move(*running)));
  co_return Result<void>();
}

Task<Result<Buffer>> Session::prepare_buffer(Request request, Held* held) {
  const std::uint64_t bytes = round_up(request.buffer_bytes(), kBlockBytes);
  auto own = co_await bytes_.acquire(bytes);
  if (!own) co_return fail(own.error());
  held->bytes = std::move(*own);
  auto shared = co_await server_bytes_.acquire(bytes);
  if (!shared) co_return fail(shared.error());
  held->server_bytes = std::move(*shared);
  co_return env_.buffers.allocate(bytes);
}

Task<void> Session::execute(Request request, Buffer data, Held held, Gate::Holder running) {
  Reply reply = co_await perform(request, std::move(data));
  post(std::move(reply), std::move(held));
  // Last: from here on the session may end.
  running.release();
}

// FUA asks for nothing more: a target's write, trim or zeroing is durable when it completes.
Task<Reply> Session::perform(Request request, Buffer data) {
  BlockTarget& target = *negotiated_.opened.target;
  switch (request.command) {
    case Command::read: co_return co_await perform_read(request, std::move(data));
    case Command::write:
      co_return outcome(request,
                        co_await target.write(request.offset, data.span(0, request.length)));
    case Command::trim:
      co_return outcome(request, co_await target.trim(request.offset, request.length));
    case Command::write_zeroes:
      co_return outcome(request, co_await target.write_zeroes(request.offset, request.length,
                                                              request.has(kCommandNoHole)));
    case Command::flush: co_return outcome(request, co_await target.flush());
    case Command::block_status: co_return co_await perform_status(request);
    case Command::disconnect:
    case Command::cache: break;
  }
  SARSEN_ASSERT(false, "judge() lets no other command pass");
}

Task<Reply> Session::perform_read(Request request, Buffer data) {
  const auto result =
      co_await negotiated_.opened.target->read(request.offset, data.span(0, request.length));
  if (!result) co_return outcome(request, result);
  co_return reply_read(request, negotiated_.structured_replies, std::move(data));
}

Task<Reply> Session::perform_status(Request request) {
  const std::uint32_t runs_max = request.has(kCommandReqOne) ? 1 : kStatusRunsMax;
  auto runs = co_await negotiated_.opened.target->status(request.offset, request.length, runs_max);
  if (!runs) co_return outcome(request, fail(std::move(runs).error()));
  co_return reply_status(request, *runs);
}

Reply Session::outcome(const Request& request, const Result<void>& result) const {
  const bool structured = negotiated_.structured_replies;
  if (result) return reply_outcome(request, structured, Errno::none);
  return reply_outcome(request, structured, errno_of(result.error()), result.error().message());
}

// --------------------------------------------------------------------------------------- replies

void Session::post(Reply reply, Held held) {
  ++replies_unsent_;
  const bool queued = replies_.try_push(Outgoing{std::move(reply), std::move(held)});
  SARSEN_ASSERT(queued, "the queue has room for every slot");
}

Task<void> Session::write_replies() {
  std::vector<Outgoing> batch;
  std::vector<std::span<const std::byte>> pieces;
  while (true) {
    auto first = co_await replies_.pop();
    if (!first) co_return;
    batch.push_back(std::move(*first));
    while (batch.size() < kRepliesPerSendMax) {
      auto next = replies_.try_pop();
      if (!next) break;
      batch.push_back(std::move(*next));
    }
    for (const Outgoing& outgoing : batch) outgoing.reply.append_pieces(pieces);
    const auto sent = co_await send(pieces);
    // The reader learns of it too; replies that follow are dropped by sends that fail at once.
    if (!sent) connection_->close();
    requests_done_ += batch.size();
    replies_unsent_ -= batch.size();
    batch.clear();
    pieces.clear();
    reply_left_.notify_all();
  }
}

Task<Result<void>> Session::send(std::span<const std::span<const std::byte>> pieces) {
  std::uint64_t bytes = 0;
  for (const auto& piece : pieces) bytes += piece.size();
  send_deadline_ = deadline_for(bytes);
  auto sent = co_await connection_->send(pieces);
  send_deadline_.reset();
  co_return sent;
}

}  // namespace sarsen::nbd
