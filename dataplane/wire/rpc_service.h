// What an OSD does for image sessions. Implemented by the OSD (replica) and by tests.
//
// The shard is that of the connection. handle() may wait; several run at once. Errors become error
// replies (see to_reply()).
#pragma once

#include <cstdint>

#include "dataplane/base/result.h"
#include "dataplane/runtime/env.h"
#include "dataplane/runtime/task.h"
#include "dataplane/runtime/timeout.h"
#include "dataplane/wire/frame.h"
#include "dataplane/wire/message.h"

namespace sarsen::wire {

struct CallContext {
  HolderId holder;  // who said hello on this connection
  SessionId session;
  Role role = Role::image_session;
  Deadline deadline;  // when the caller stops waiting
  TrafficClass traffic_class = TrafficClass::client;
  std::uint32_t tenant = 0;
  TraceId trace;
};

// `data` starts with the data runs of `reply`, one after the other; answers(reply, range, bytes)
// holds for their sum.
struct ReadResult {
  ReadReply reply;
  Buffer data;
};

class RpcService {
 public:
  virtual ~RpcService() = default;

  // The epoch of the group as this OSD knows it, told with each error; 0: not known.
  virtual PgEpoch epoch_of(const PgAddress&) const { return {}; }
  virtual Task<Result<PgHelloReply>> handle(CallContext context, PgHello request) = 0;
  virtual Task<Result<ReadResult>> handle(CallContext context, ReadRequest request) = 0;
  // `data` starts with the bytes of the range; their checksums were verified.
  virtual Task<Result<Changed>> handle(CallContext context, WriteRequest request, Buffer data) = 0;
  virtual Task<Result<Changed>> handle(CallContext context, TrimRequest request) = 0;
  virtual Task<Result<Changed>> handle(CallContext context, WriteZeroesRequest request) = 0;
  virtual Task<Result<Changed>> handle(CallContext context, RemoveRequest request) = 0;
  virtual Task<Result<Changed>> handle(CallContext context, BarrierRequest request) = 0;
  virtual Task<Result<StatusReply>> handle(CallContext context, StatusRequest request) = 0;
};

}  // namespace sarsen::wire
