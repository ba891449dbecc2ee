// One connection to one shard of an OSD: many calls at once, each with its deadline.
//
// Lifecycle  connect() gives a client that has said hello. When the connection ends, calls under
// way
//            and later ones answer connection_reset, and broken() is true: make another client.
//            A peer that is gone without a word shows only in calls that time out: stop and make
//            another then. `co_await stop()` before destruction; it ends the calls under way.
// Shard      One.
// Memory     I-WIRE-3: spans of a call are touched only until it returns, whatever its outcome.
// Bounded    By what the server announced: calls wait for their turn, within their deadline.
// Errors     timed_out: the answer did not come in time; whether the operation took effect is not
//            known, and it may be sent again with the same operation id (rule R7).
//            connection_reset, stopped: the same. bad_checksum (remote): data arrived that was not
//            sent. What the server answered, see from_reply(). A call outlasts its deadline only
//            while its frame is being sent or its data received, and then by no more than
//            stall_max.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "dataplane/base/result.h"
#include "dataplane/runtime/env.h"
#include "dataplane/runtime/gate.h"
#include "dataplane/runtime/scope.h"
#include "dataplane/runtime/semaphore.h"
#include "dataplane/runtime/task.h"
#include "dataplane/runtime/timeout.h"
#include "dataplane/wire/codec.h"
#include "dataplane/wire/frame_stream.h"
#include "dataplane/wire/hello.h"
#include "dataplane/wire/message.h"

namespace sarsen::wire {

struct CallOptions {
  Deadline deadline;
  TrafficClass traffic_class = TrafficClass::client;
  std::uint32_t tenant = 0;
  TraceId trace;
};

class RpcClient {
 public:
  // `env` outlives the client. Version fields of `hello` are filled in. The deadline is that of the
  // hello; reaching the address takes as long as Network::connect() does.
  static Task<Result<std::unique_ptr<RpcClient>>> connect(const Env* env, Address address,
                                                          Hello hello, Deadline deadline,
                                                          FrameStreamLimits limits = {});
  Task<void> stop();

  const HelloReply& server() const { return server_; }
  bool broken() const { return broken_; }

  // Sets the checksums of `request`. `data` are the bytes of its range.
  Task<Result<Changed>> write(WriteRequest request, std::span<const std::byte> data,
                              CallOptions options);
  // Fills `into`, the bytes of the request's range; every sum was checked. After an error its
  // contents are unspecified.
  Task<Result<void>> read(ReadRequest request, std::span<std::byte> into, CallOptions options);
  // The other messages: PgHello, TrimRequest, WriteZeroesRequest, RemoveRequest, BarrierRequest,
  // StatusRequest.
  template <typename Request>
  Task<Result<typename Request::Reply>> call(Request request, CallOptions options);

 private:
  struct Pending;

  RpcClient(const Env& env, std::unique_ptr<Connection> connection, FrameStreamLimits limits);
  Task<Result<void>> say_hello(Hello hello);
  Task<Result<void>> exchange(Pending* pending, std::vector<std::byte> body,
                              std::span<const std::byte> data, CallOptions options);
  Task<Result<void>> exchange_until(Pending* pending, std::vector<std::byte> body,
                                    std::span<const std::byte> data, CallOptions options,
                                    CancelToken token);
  Task<Result<void>> await_reply(Pending* pending, std::optional<Error> send_error,
                                 CancelToken token);
  Task<void> receive_replies();
  Task<Result<void>> take_reply(ReceivedFrame frame);
  Task<Result<void>> take_data(Pending* pending, ReadReply reply);
  void fail_pending(const Error& error);

  const Env& env_;
  FrameStream stream_;
  HelloReply server_;
  bool broken_ = false;
  std::uint64_t last_request_id_ = 0;
  std::map<std::uint64_t, Pending*> pending_;
  // Made when the server has announced their sizes.
  std::unique_ptr<Semaphore> operations_;
  std::unique_ptr<Semaphore> data_bytes_;
  Gate calls_;
  Scope scope_;
};

}  // namespace sarsen::wire
