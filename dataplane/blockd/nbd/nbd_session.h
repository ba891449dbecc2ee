// One NBD connection: handshake, then requests until the client goes.
//
// Requests run at the same time and are answered in the order in which they finish. A reader starts
// them, a coroutine runs each (of long reads and writes: each segment), a writer sends what is
// finished, many replies in one send.
//
// Lifecycle  run() once; it returns when the connection is closed and no request is in flight.
//            shut_down() lets requests in flight end, refuses new ones, then closes. abort()
//            closes.
// Shard      The server's.
// Owns       The connection. Borrows everything else, which outlives run().
// Bounded    I-NBD-1, I-NBD-2. A request takes a slot before it is read, and its segments take
//            bytes (of the session's budget, then of the server's) before their data comes. A write
//            gives bytes back when the target has the data, a read when its reply was sent or
//            dropped. So a client that sends much or takes little waits for itself, and no longer
//            than its deadline: check_progress() ends a connection that holds memory and moves
//            no data.
// Errors     run() says why the connection ended; no error when the client said goodbye.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "dataplane/base/intrusive_list.h"
#include "dataplane/base/result.h"
#include "dataplane/base/units.h"
#include "dataplane/blockd/nbd/nbd_export.h"
#include "dataplane/blockd/nbd/nbd_handshake.h"
#include "dataplane/blockd/nbd/nbd_reply.h"
#include "dataplane/blockd/nbd/nbd_request.h"
#include "dataplane/runtime/cancel.h"
#include "dataplane/runtime/env.h"
#include "dataplane/runtime/gate.h"
#include "dataplane/runtime/queue.h"
#include "dataplane/runtime/scope.h"
#include "dataplane/runtime/semaphore.h"
#include "dataplane/runtime/task.h"
#include "dataplane/wire/buffered_receiver.h"

namespace sarsen::nbd {

// A budget with less could not run every request: a read without structured replies is answered in
// one piece, and its ends may share blocks with others.
inline constexpr std::uint64_t kBudgetBytesMin = kPayloadBytesMax + kSegmentBytes;

struct SessionLimits {
  std::uint32_t requests_in_flight_max = 128;
  // At least kBudgetBytesMin.
  std::uint64_t bytes_in_flight_max = 40 * kMiB;
  std::size_t receive_buffer_bytes = 128 * kKiB;
  std::uint32_t options_max = 4096;
  // For the whole handshake.
  Duration handshake_max = seconds(30);
  // A payload or a reply of n bytes must pass within stall_max + n / bytes_per_second_min.
  Duration stall_max = seconds(60);
  std::uint64_t bytes_per_second_min = kMiB;
};

class Session final : public ListNode {
 public:
  // `server_bytes` is the budget that all sessions share.
  Session(const Env& env, Exports& exports, SessionLimits limits, Semaphore& server_bytes,
          std::unique_ptr<Connection> connection);

  Task<Result<void>> run();
  void shut_down();
  void abort() {
    closed_.cancel(RuntimeError::connection_reset);
    connection_->close();
  }
  // Ends the session when the client has missed a deadline. To be called now and then.
  void check_progress();

  std::uint64_t replies_done() const { return replies_done_; }

 private:
  // A request from when it was read until its last reply has left or was dropped.
  struct Ongoing {
    Request request;
    Units slot;
    Gate::Holder running;
    std::size_t segment_count = 1;
    std::size_t segments_left = 1;
    std::optional<Error> error;  // the first
  };
  using OngoingPointer = std::shared_ptr<Ongoing>;
  struct Bytes {
    Units own;
    Units shared;
  };
  struct Outgoing {
    Reply reply;
    Bytes bytes;
    OngoingPointer request;
  };

  Task<Result<bool>> shake_hands();
  Task<Result<HandshakeStep>> next_option();

  Task<Result<void>> read_requests();
  Task<Result<void>> begin(OngoingPointer ongoing);
  Task<Result<void>> begin_write(OngoingPointer ongoing);
  Task<Result<void>> begin_read(OngoingPointer ongoing);
  Task<Result<void>> begin_read_in_one_reply(OngoingPointer ongoing);
  Task<Result<void>> refuse(OngoingPointer ongoing, Judgement judgement);
  Task<Result<void>> receive_payload(std::span<std::byte> into);
  Task<Result<Bytes>> reserve(std::uint64_t bytes);
  Task<Result<Buffer>> allocate(std::uint64_t bytes);

  Task<void> write_segment(OngoingPointer ongoing, Segment segment, Buffer data, Bytes bytes);
  Task<void> read_segment(OngoingPointer ongoing, Segment segment, Buffer data, Bytes bytes);
  Task<void> read_in_one_reply(OngoingPointer ongoing, std::vector<Segment> segments,
                               std::vector<Buffer> buffers, Bytes bytes);
  Task<void> run_without_data(OngoingPointer ongoing);
  Task<void> run_status(OngoingPointer ongoing);
  void segment_done(const OngoingPointer& ongoing, const Result<void>& result);
  void post_outcome(const OngoingPointer& ongoing, const Result<void>& result);
  void post(Reply reply, Bytes bytes, OngoingPointer ongoing);

  Task<void> write_replies();
  Task<void> close_when_drained();
  Task<Result<void>> send(std::span<const std::span<const std::byte>> pieces);
  BootTime deadline_for(std::uint64_t bytes) const;

  const Env& env_;
  const SessionLimits limits_;
  Semaphore& server_bytes_;
  std::unique_ptr<Connection> connection_;
  wire::BufferedReceiver receiver_;
  Handshake handshake_;
  Negotiated negotiated_;

  Semaphore slots_;
  Semaphore bytes_;
  Gate running_;             // requests that a target works on
  Queue<Outgoing> replies_;  // room for every slot: a push never waits
  std::uint64_t replies_done_ = 0;
  bool serving_ = false;
  CancelSource closed_;  // ends the reader's waits for memory
  std::optional<BootTime> receive_deadline_;
  std::optional<BootTime> send_deadline_;
  bool too_slow_ = false;
  Scope scope_;
};

}  // namespace sarsen::nbd
