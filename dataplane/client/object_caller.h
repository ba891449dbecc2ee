// ObjectCaller: sends the operations of one session, each on one object, until they are answered.
// Where an object lives, which connection leads there, what must be said first, and what an error
// means are decided here.
//
// Invariants
//   I-CLIENT-2  Nothing is sent to a group before a pg_hello on the same connection, for the same
//               configuration of the group, was answered (rule R7).
//   I-CLIENT-3  A change keeps its operation id through all of its tries.
//
// Lifecycle  start() watches the map; close() ends everything under way; `co_await stop()` before
//            destruction.
// Shard      One. Borrows Env, MapSource.
// Order      None between operations: the session has serialised those that overlap.
// Errors     ClientError, and what an OSD answered that trying again cannot mend.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "dataplane/client/error.h"
#include "dataplane/client/image_session.h"
#include "dataplane/client/operation_ids.h"
#include "dataplane/client/osd_link.h"
#include "dataplane/runtime/gate.h"
#include "dataplane/runtime/timeout.h"

namespace sarsen {

// Bytes of one object of the image.
struct ObjectPart {
  wire::ObjectNumber object;
  wire::Range range;

  std::uint64_t offset() const { return object.value * kObjectBytes + range.offset; }
};

// How long an operation may take. The token is cancelled when it may not go on.
struct CallerPatience {
  CancelToken token;
  Deadline deadline;
};

class ObjectCaller {
 public:
  // `image` is that of a map which has the attachment.
  ObjectCaller(const Env& env, MapSource& map, ImageSessionOptions options);

  void start();
  Task<void> stop();

  // As the newest map that had the image says.
  const ImageEntry& image() const { return image_; }
  const AttachmentEntry& attachment() const { return attachment_; }
  bool fenced() const { return fenced_; }
  // Cancelled when the session was fenced or stopped.
  CancelToken ended() { return ended_.token(); }
  // The error of an operation whose token was cancelled.
  Error end_error(CancelToken token) const;

  Task<Result<void>> read(ObjectPart part, std::span<std::byte> into, CallerPatience patience);
  Task<Result<void>> write(ObjectPart part, std::span<const std::byte> from,
                           CallerPatience patience);
  Task<Result<void>> trim(ObjectPart part, CallerPatience patience);
  Task<Result<void>> write_zeroes(ObjectPart part, bool keep_allocated, CallerPatience patience);
  Task<Result<std::vector<wire::Run>>> status(ObjectPart part, std::uint32_t runs_max,
                                              CallerPatience patience);

  std::uint64_t resent() const { return resent_; }
  std::uint64_t reconnected() const;
  std::uint32_t waiting() const { return waiting_; }

 private:
  // Where the next try goes.
  struct Route {
    MapEpoch map_epoch;
    wire::PgAddress pg;
    OsdLink* link = nullptr;
    OsdConnection connection;
  };
  // One operation, over all of its tries.
  struct Call;
  // What a group was told, and on which connection.
  struct Greeting {
    explicit Greeting(Executor& executor) : changed(executor) {}
    OsdLink* link = nullptr;
    std::uint64_t generation = 0;
    PgEpoch epoch;
    bool under_way = false;
    Condition changed;
  };

  template <typename Reply, typename Send>
  Task<Result<Reply>> until_answered(ObjectPart part, bool change, CallerPatience patience,
                                     Send send);
  template <typename Request>
  Task<Result<wire::Changed>> change(Request request, ObjectPart part, CallerPatience patience);
  template <typename Reply, typename Send>
  Task<Result<Reply>> attempt(Call* call, Send* send);
  Task<Result<Route>> find_route(Call* call);
  Task<Result<void>> greet(Call* call, Route route);
  // After `error` of a try: waits for what may help. Error: there is no next try.
  Task<Result<void>> before_next(Call* call, Error error);
  Task<Result<void>> pause(Call* call, bool for_newer_map);
  Result<void> look_at_map(const ObjectPart& part, const ClusterMap& map);
  Task<void> watch_map();
  void take_map(const ClusterMap& map);
  void fence();
  OsdLink& link_of(wire::OsdId osd);
  wire::ObjectAddress address(const Route& route, const ObjectPart& part) const;
  wire::Attachment wire_attachment() const;
  wire::Generation generation() const;
  wire::CallOptions call_options(const Call& call) const;

  const Env& env_;
  MapSource& map_;
  const ImageSessionOptions options_;
  ImageEntry image_;
  AttachmentEntry attachment_;
  bool fenced_ = false;
  CancelSource ended_;
  OperationIds ids_;
  std::map<wire::OsdId, std::unique_ptr<OsdLink>> links_;
  std::map<wire::PgNumber, std::unique_ptr<Greeting>> greetings_;
  std::uint64_t resent_ = 0;
  std::uint32_t waiting_ = 0;
  Gate calls_;
  Scope scope_;
};

}  // namespace sarsen
