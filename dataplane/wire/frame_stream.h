// Frames over one connection: many senders, one receiver.
//
// Lifecycle  start(), then send() and receive(); `co_await stop()` before destruction: it closes
// the
//            connection, fails what is queued and waits for the writer.
// Shard      One. receive(), receive_data() and skip_data() are one caller's, one at a time.
// Bounded    At most frames_queued_max frames wait to be sent (their bytes are the senders'), one
//            receive buffer. Data is received into memory that the caller provides, after it has
//            seen the header. A transfer that makes no end within stall_max closes the connection.
// Errors     Those of Connection; those of decode_header() and check_body(), after which the stream
//            cannot go on and should be closed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "dataplane/base/result.h"
#include "dataplane/runtime/cancel.h"
#include "dataplane/runtime/env.h"
#include "dataplane/runtime/queue.h"
#include "dataplane/runtime/scope.h"
#include "dataplane/runtime/task.h"
#include "dataplane/runtime/timer.h"
#include "dataplane/wire/buffered_receiver.h"
#include "dataplane/wire/frame.h"

namespace sarsen::wire {

struct FrameStreamLimits {
  // Room for the longest header and body at least.
  std::size_t receive_buffer_bytes = 256 * kKiB;
  std::size_t frames_queued_max = 1024;
  // One send takes at most so many frames, so that the first of them is not held up for long.
  std::size_t frames_per_send_max = 64;
  Duration stall_max = seconds(30);
};

struct ReceivedFrame {
  FrameHeader header;
  // Checked (I-WIRE-2); valid until the next call on the stream.
  std::span<const std::byte> body;
};

class FrameStream {
 public:
  FrameStream(const Env& env, std::unique_ptr<Connection> connection, FrameStreamLimits limits);

  void start() { scope_.spawn(write_frames()); }
  Task<void> stop();
  // Ends both directions; pending and later calls fail. Idempotent.
  void close() { connection_->close(); }

  // Fills in lengths and checksum of `header`. `data` stays valid until this returns, which is when
  // the frame was handed to the connection. The token ends only the wait for a place in the queue.
  Task<Result<void>> send(FrameHeader header, std::vector<std::byte> body,
                          std::span<const std::byte> data = {}, CancelToken token = {});

  // The next frame, without its data; nothing when the peer ended between frames. The data of the
  // frame before it was received or skipped.
  Task<Result<std::optional<ReceivedFrame>>> receive();
  // The next `into.size()` bytes of the frame's data.
  Task<Result<void>> receive_data(std::span<std::byte> into);
  // What is left of the frame's data.
  Task<Result<void>> skip_data();

  std::uint32_t data_left() const { return data_left_; }
  Address peer() const { return connection_->peer(); }

 private:
  struct Outgoing;
  struct CloseConnection {
    Connection* connection;
    void operator()() const { connection->close(); }
  };

  Task<void> write_frames();

  const Env& env_;
  const FrameStreamLimits limits_;
  std::unique_ptr<Connection> connection_;
  BufferedReceiver receiver_;
  std::uint32_t data_left_ = 0;
  Queue<Outgoing*> queue_;
  Timer<CloseConnection> send_stall_;
  Timer<CloseConnection> receive_stall_;
  Scope scope_;
};

}  // namespace sarsen::wire
