#include "dataplane/wire/frame_stream.h"

#include <utility>

#include "dataplane/base/assert.h"
#include "dataplane/runtime/error.h"
#include "dataplane/runtime/event.h"

namespace sarsen::wire {

// Lives in the frame of send(), which waits for `done`.
struct FrameStream::Outgoing {
  explicit Outgoing(Executor& executor) : done(executor) {}
  std::array<std::byte, kHeaderBytes> header{};
  std::vector<std::byte> body;
  std::span<const std::byte> data;
  Result<void> result;
  Event done;
};

FrameStream::FrameStream(const Env& env, std::unique_ptr<Connection> connection,
                         FrameStreamLimits limits)
    : env_(env),
      limits_(limits),
      connection_(std::move(connection)),
      receiver_(*connection_, limits.receive_buffer_bytes),
      queue_(env.executor, limits.frames_queued_max),
      send_stall_(env.clock, CloseConnection{connection_.get()}),
      receive_stall_(env.clock, CloseConnection{connection_.get()}),
      scope_(env.executor) {
  SARSEN_ASSERT(limits.receive_buffer_bytes >= kHeaderBytes + kBodyBytesMax,
                "a header and its body fit the receive buffer");
}

Task<void> FrameStream::stop() {
  close();
  queue_.close();
  co_await scope_.join();
}

Task<Result<void>> FrameStream::send(FrameHeader header, std::vector<std::byte> body,
                                     std::span<const std::byte> data, CancelToken token) {
  SARSEN_ASSERT(data.size() <= kDataBytesMax, "callers send at most one object");
  Outgoing outgoing(env_.executor);
  describe_body(header, body);
  header.data_bytes = static_cast<std::uint32_t>(data.size());
  encode_header(header, outgoing.header);
  outgoing.body = std::move(body);
  outgoing.data = data;
  SARSEN_CO_TRY(co_await queue_.push(&outgoing, token));
  // I-WIRE-3. Not to be cancelled: the connection may be reading `data` now.
  co_await outgoing.done.wait();
  co_return outgoing.result;
}

Task<void> FrameStream::write_frames() {
  std::vector<Outgoing*> batch;
  std::vector<std::span<const std::byte>> pieces;
  while (true) {
    const auto first = co_await queue_.pop();
    if (!first) co_return;
    batch.push_back(*first);
    while (batch.size() < limits_.frames_per_send_max) {
      const auto next = queue_.try_pop();
      if (!next) break;
      batch.push_back(*next);
    }
    for (const Outgoing* outgoing : batch) {
      pieces.emplace_back(outgoing->header);
      if (!outgoing->body.empty()) pieces.emplace_back(outgoing->body);
      if (!outgoing->data.empty()) pieces.push_back(outgoing->data);
    }
    send_stall_.arm(env_.clock.now() + limits_.stall_max);
    const auto sent = co_await connection_->send(pieces);
    send_stall_.disarm();
    // The receiver learns of it too; frames that follow fail at once.
    if (!sent) connection_->close();
    for (Outgoing* outgoing : batch) {
      outgoing->result = sent;
      outgoing->done.set();
    }
    batch.clear();
    pieces.clear();
  }
}

Task<Result<std::optional<ReceivedFrame>>> FrameStream::receive() {
  SARSEN_ASSERT(data_left_ == 0, "the data of a frame is taken before the next frame");
  if (receiver_.available() < kHeaderBytes) {
    const auto more = co_await receiver_.fill(kHeaderBytes);
    if (!more) co_return fail(more.error());
    if (!*more) co_return std::optional<ReceivedFrame>();
  }
  ReceivedFrame frame;
  const auto header = decode_header(receiver_.take(kHeaderBytes).first<kHeaderBytes>());
  if (!header) co_return fail(header.error());
  frame.header = *header;
  if (receiver_.available() < header->body_bytes) {
    const auto more = co_await receiver_.fill(header->body_bytes);
    if (!more) co_return fail(more.error());
    if (!*more) co_return fail(make_error(RuntimeError::connection_reset, "before a body"));
  }
  frame.body = receiver_.take(header->body_bytes);
  SARSEN_CO_TRY(check_body(*header, frame.body));
  data_left_ = header->data_bytes;
  co_return std::optional<ReceivedFrame>(frame);
}

Task<Result<void>> FrameStream::receive_data(std::span<std::byte> into) {
  SARSEN_ASSERT(into.size() <= data_left_, "only the data of this frame is received");
  data_left_ -= static_cast<std::uint32_t>(into.size());
  receive_stall_.arm(env_.clock.now() + limits_.stall_max);
  auto received = co_await receiver_.read(into);
  receive_stall_.disarm();
  co_return received;
}

Task<Result<void>> FrameStream::skip_data() {
  receive_stall_.arm(env_.clock.now() + limits_.stall_max);
  auto skipped = co_await receiver_.skip(std::exchange(data_left_, 0));
  receive_stall_.disarm();
  co_return skipped;
}

}  // namespace sarsen::wire
