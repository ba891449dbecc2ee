// The server's end of one connection: hello, then requests until the client goes.
//
// Lifecycle  run() once; it returns when the connection is closed and no request is under way.
//            shut_down() lets requests under way end and answers later ones `stopped`; abort()
//            closes.
// Shard      The service's.
// Owns       The connection. Borrows the rest, which outlives run().
// Bounded    As announced in the hello reply: operations_max requests and data_bytes_max bytes. A
//            client that sends more waits for itself; the server's budget is shared by all
//            sessions.
// Errors     run() says why the connection ended; none when the client ended it between frames.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "dataplane/base/intrusive_list.h"
#include "dataplane/base/result.h"
#include "dataplane/runtime/cancel.h"
#include "dataplane/runtime/env.h"
#include "dataplane/runtime/gate.h"
#include "dataplane/runtime/scope.h"
#include "dataplane/runtime/semaphore.h"
#include "dataplane/runtime/task.h"
#include "dataplane/wire/frame_stream.h"
#include "dataplane/wire/hello.h"
#include "dataplane/wire/rpc_service.h"

namespace sarsen::wire {

class RpcSession final : public ListNode {
 public:
  RpcSession(const Env& env, RpcService& service, const ServerIdentity& identity,
             FrameStreamLimits limits, Duration hello_max, Semaphore& server_bytes,
             std::unique_ptr<Connection> connection);

  Task<Result<void>> run();
  void shut_down();
  void abort() {
    closed_.cancel(RuntimeError::connection_reset);
    stream_.close();
  }

 private:
  struct Held {
    Units operation;
    Units data_bytes;
    Units server_bytes;
  };
  struct Answer;

  Task<Result<void>> greet();
  Task<Result<void>> serve();
  Task<Result<void>> take_request(ReceivedFrame frame);
  template <typename Request>
  Task<Result<void>> start(ReceivedFrame frame);
  Task<Result<void>> start_write(ReceivedFrame frame);
  Task<Result<void>> start_read(ReceivedFrame frame);
  Task<Result<void>> reserve(std::uint64_t bytes, Held* held);
  template <typename Request>
  Task<void> run_request(FrameHeader header, Request request, Held held, Gate::Holder running);
  Task<void> run_write(FrameHeader header, WriteRequest request, Buffer data, Held held,
                       Gate::Holder running);
  Task<void> run_read(FrameHeader header, ReadRequest request, Held held, Gate::Holder running);
  // Answers without running anything.
  Task<Result<void>> refuse(FrameHeader header, Error error, Held held);
  Task<void> answer_refused(FrameHeader header, Error error, Held held);
  Task<Result<void>> send_error(FrameHeader request, Error error, PgEpoch epoch = {});
  Task<void> close_when_drained();
  CallContext context_of(const FrameHeader& header) const;

  const Env& env_;
  RpcService& service_;
  const ServerIdentity& identity_;
  const Duration hello_max_;
  Semaphore& server_bytes_;
  FrameStream stream_;
  Hello peer_;
  Semaphore operations_;
  Semaphore data_bytes_;
  Gate running_;
  bool serving_ = false;
  CancelSource closed_;  // ends the reader's waits for budget
  Scope scope_;
};

}  // namespace sarsen::wire
