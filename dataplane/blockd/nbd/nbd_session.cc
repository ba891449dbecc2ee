#include "dataplane/blockd/nbd/nbd_session.h"

#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "dataplane/base/assert.h"
#include "dataplane/blockd/nbd/nbd_error.h"
#include "dataplane/runtime/error.h"
#include "dataplane/runtime/timeout.h"
#include "dataplane/runtime/when_all.h"

namespace sarsen::nbd {
namespace {

// One send takes at most this many replies, so that the first of them is not held up for long.
constexpr std::size_t kRepliesPerSendMax = 64;
// How often to ask again for memory that others of this shard have now.
constexpr Duration kMemoryRetry = milliseconds(5);

// Every request has one reply; a long read has one more for each whole segment, whose bytes are
// counted, and for the two at its ends.
std::size_t replies_max(const SessionLimits& limits) {
  return 3ull * limits.requests_in_flight_max + limits.bytes_in_flight_max / kSegmentBytes;
}

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
      replies_(env.executor, replies_max(limits)),
      closed_(env.executor),
      scope_(env.executor) {
  SARSEN_ASSERT(limits.bytes_in_flight_max >= kBudgetBytesMin, "every request must be able to run");
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
  // No more requests. Those in flight end, and their replies leave if the client still takes them.
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
  abort();
}

void Session::check_progress() {
  const BootTime now = env_.clock.now();
  const bool late = (receive_deadline_ && now >= *receive_deadline_) ||
                    (send_deadline_ && now >= *send_deadline_);
  if (!late) return;
  too_slow_ = true;
  abort();
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

    auto ongoing = std::make_shared<Ongoing>();
    ongoing->request = *request;
    ongoing->slot = std::move(*slot);
    SARSEN_CO_TRY(co_await begin(std::move(ongoing)));
  }
}

// Here and below: an error means that the connection cannot go on.
Task<Result<void>> Session::begin(OngoingPointer ongoing) {
  const Judgement judgement = judge(ongoing->request, negotiated_);
  auto running = running_.hold();
  if (!running) co_return co_await refuse(ongoing, {Errno::shutdown, "the server is stopping"});
  ongoing->running = std::move(*running);
  if (!judgement.acceptable()) co_return co_await refuse(ongoing, judgement);

  switch (ongoing->request.command) {
    case Command::write: co_return co_await begin_write(ongoing);
    case Command::read:
      if (!negotiated_.structured_replies) co_return co_await begin_read_in_one_reply(ongoing);
      co_return co_await begin_read(ongoing);
    case Command::block_status: scope_.spawn(run_status(ongoing)); break;
    default: scope_.spawn(run_without_data(ongoing));
  }
  co_return Result<void>();
}

// Answers without doing anything.
Task<Result<void>> Session::refuse(OngoingPointer ongoing, Judgement judgement) {
  SARSEN_CO_TRY(co_await receiver_.skip(ongoing->request.payload_bytes()));
  post(reply_outcome(ongoing->request, negotiated_.structured_replies, judgement.error,
                     judgement.sentence),
       {}, ongoing);
  co_return Result<void>();
}

Task<Result<void>> Session::begin_write(OngoingPointer ongoing) {
  const auto segments = segments_of(ongoing->request);
  ongoing->segment_count = ongoing->segments_left = segments.size();
  for (const Segment segment : segments) {
    auto bytes = co_await reserve(segment.length);
    if (!bytes) co_return fail(bytes.error());
    auto data = co_await allocate(segment.length);
    if (data) {
      SARSEN_CO_TRY(co_await receive_payload(data->span(0, segment.length)));
      scope_.spawn(write_segment(ongoing, segment, std::move(*data), std::move(*bytes)));
    } else {
      SARSEN_CO_TRY(co_await receiver_.skip(segment.length));
      segment_done(ongoing, fail(data.error()));
    }
  }
  co_return Result<void>();
}

Task<Result<void>> Session::receive_payload(std::span<std::byte> into) {
  if (receiver_.available() >= into.size()) {
    std::memcpy(into.data(), receiver_.take(into.size()).data(), into.size());
    co_return Result<void>();
  }
  receive_deadline_ = deadline_for(into.size());
  auto received = co_await receiver_.read(into);
  receive_deadline_.reset();
  co_return received;
}

Task<Result<void>> Session::begin_read(OngoingPointer ongoing) {
  const auto segments = segments_of(ongoing->request);
  ongoing->segment_count = ongoing->segments_left = segments.size();
  for (const Segment segment : segments) {
    auto bytes = co_await reserve(segment.length);
    if (!bytes) co_return fail(bytes.error());
    auto data = co_await allocate(segment.length);
    if (data) {
      scope_.spawn(read_segment(ongoing, segment, std::move(*data), std::move(*bytes)));
    } else {
      segment_done(ongoing, fail(data.error()));
    }
  }
  co_return Result<void>();
}

// A simple reply says whether the read succeeded before it has any data, and nothing can come
// between: all of it must be there first.
Task<Result<void>> Session::begin_read_in_one_reply(OngoingPointer ongoing) {
  auto segments = segments_of(ongoing->request);
  std::uint64_t total = 0;
  for (const Segment segment : segments) total += round_up(segment.length, kBlockBytes);
  auto bytes = co_await reserve(total);
  if (!bytes) co_return fail(bytes.error());
  std::vector<Buffer> buffers;
  for (const Segment segment : segments) {
    auto data = co_await allocate(segment.length);
    if (!data) {
      post_outcome(ongoing, fail(data.error()));
      co_return Result<void>();
    }
    buffers.push_back(std::move(*data));
  }
  scope_.spawn(
      read_in_one_reply(ongoing, std::move(segments), std::move(buffers), std::move(*bytes)));
  co_return Result<void>();
}

Task<Result<Session::Bytes>> Session::reserve(std::uint64_t bytes) {
  bytes = round_up(bytes, kBlockBytes);
  auto own = co_await bytes_.acquire(bytes, closed_.token());
  if (!own) co_return fail(own.error());
  auto shared = co_await server_bytes_.acquire(bytes, closed_.token());
  if (!shared) co_return fail(shared.error());
  co_return Bytes{std::move(*own), std::move(*shared)};
}

// The budgets keep within the pool, but others use it too: what is short now comes back.
Task<Result<Buffer>> Session::allocate(std::uint64_t bytes) {
  const BootTime give_up = env_.clock.now() + limits_.stall_max;
  while (true) {
    auto buffer = env_.buffers.allocate(bytes);
    if (buffer || env_.clock.now() >= give_up) co_return buffer;
    SARSEN_CO_TRY(co_await sleep_for(env_.clock, kMemoryRetry, closed_.token()));
  }
}

// ------------------------------------------------------------------------------- on the target

// FUA asks for nothing more: a target's write, trim or zeroing is durable when it completes.
Task<void> Session::write_segment(OngoingPointer ongoing, Segment segment, Buffer data,
                                  Bytes bytes) {
  const auto result =
      co_await negotiated_.opened.target->write(segment.offset, data.span(0, segment.length));
  data = {};
  bytes = {};
  segment_done(ongoing, result);
}

Task<void> Session::read_segment(OngoingPointer ongoing, Segment segment, Buffer data,
                                 Bytes bytes) {
  const auto result =
      co_await negotiated_.opened.target->read(segment.offset, data.span(0, segment.length));
  if (result) {
    const bool whole = ongoing->segment_count == 1;
    post(reply_chunks(ongoing->request, segment, std::move(data), whole), std::move(bytes),
         ongoing);
    if (whole) co_return;
  }
  segment_done(ongoing, result);
}

void Session::segment_done(const OngoingPointer& ongoing, const Result<void>& result) {
  if (!result && !ongoing->error) ongoing->error = result.error();
  if (--ongoing->segments_left > 0) return;
  post_outcome(ongoing, ongoing->error ? fail(*ongoing->error) : Result<void>());
}

Task<void> Session::read_in_one_reply(OngoingPointer ongoing, std::vector<Segment> segments,
                                      std::vector<Buffer> buffers, Bytes bytes) {
  BlockTarget& target = *negotiated_.opened.target;
  std::vector<Task<Result<void>>> reads;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    reads.push_back(target.read(segments[i].offset, buffers[i].span(0, segments[i].length)));
  }
  const auto results = co_await when_all(env_.executor, std::move(reads));
  if (const auto result = first_error(results); !result) {
    post_outcome(ongoing, result);
  } else {
    post(reply_read(ongoing->request, segments, std::move(buffers)), std::move(bytes), ongoing);
  }
}

Task<void> Session::run_without_data(OngoingPointer ongoing) {
  const Request request = ongoing->request;
  BlockTarget& target = *negotiated_.opened.target;
  Result<void> result;
  switch (request.command) {
    case Command::trim: result = co_await target.trim(request.offset, request.length); break;
    case Command::write_zeroes:
      result =
          co_await target.write_zeroes(request.offset, request.length, request.has(kCommandNoHole));
      break;
    case Command::flush: result = co_await target.flush(); break;
    default: SARSEN_ASSERT(false, "judge() lets no other command pass");
  }
  post_outcome(ongoing, result);
}

Task<void> Session::run_status(OngoingPointer ongoing) {
  const Request request = ongoing->request;
  const std::uint32_t runs_max = request.has(kCommandReqOne) ? 1 : kStatusRunsMax;
  const auto runs =
      co_await negotiated_.opened.target->status(request.offset, request.length, runs_max);
  if (runs) {
    post(reply_status(request, *runs), {}, ongoing);
  } else {
    post_outcome(ongoing, fail(runs.error()));
  }
}

// --------------------------------------------------------------------------------------- replies

void Session::post_outcome(const OngoingPointer& ongoing, const Result<void>& result) {
  const Errno error = result ? Errno::none : errno_of(result.error());
  const std::string sentence = result ? std::string() : result.error().message();
  post(reply_outcome(ongoing->request, negotiated_.structured_replies, error, sentence), {},
       ongoing);
}

void Session::post(Reply reply, Bytes bytes, OngoingPointer ongoing) {
  const bool queued =
      replies_.try_push(Outgoing{std::move(reply), std::move(bytes), std::move(ongoing)});
  SARSEN_ASSERT(queued, "the queue has room for all replies that there can be");
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
    if (!sent) abort();
    replies_done_ += batch.size();
    pieces.clear();
    batch.clear();
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
