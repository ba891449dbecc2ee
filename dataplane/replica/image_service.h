// ImageService: what an OSD does for the image sessions of the placement groups that it leads.
//
// Every change goes through the same stops: the map admits it (admission.h), its session takes it
// as new (session_table.h), it waits for its blocks (R8), the map and the session are asked again,
// it gets its place in the order of its group, and is made durable. One copy today: replication
// comes between the last two.
//
// Lifecycle  start() begins to follow the map; `co_await stop()` before destruction, after the
//            server that calls it has stopped, and before the store does.
// Shard      One, that of the store. Borrows Env, MapSource and Store.
// Old maps   A client that knows more than this OSD (a newer configuration, attachment or size) is
//            kept waiting for the newer map, at most map_wait_max, before it is refused.
// Errors     wire::RemoteError.
// Bounded    By what the server lets in; a session remembers window_max changes.
//
// Invariants
//   I-REPLICA-5  Between the last look at map and session and the call to the store nothing waits:
//                settled_epoch() is no newer than the map of any change that is under way.
//   I-REPLICA-6  A change of a part of a block reads, merges and writes it under an exclusive lock
//                of the block (rule R8).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "dataplane/membership/map_source.h"
#include "dataplane/membership/mon_api.h"
#include "dataplane/replica/admission.h"
#include "dataplane/replica/led_group.h"
#include "dataplane/replica/purger.h"
#include "dataplane/runtime/gate.h"
#include "dataplane/runtime/range_lock.h"
#include "dataplane/runtime/scope.h"
#include "dataplane/runtime/timeout.h"
#include "dataplane/store/store.h"
#include "dataplane/wire/rpc_service.h"

namespace sarsen {

struct ImageServiceLimits {
  Duration map_wait_max = seconds(2);
  // At least what the server announces as operations_max.
  std::uint32_t window_max = 1024;
  PurgeLimits purge;
};

class ImageService final : public wire::RpcService, private PurgeTarget {
 public:
  ImageService(Env& env, MapSource& map, Store& store, OsdRun run, ImageServiceLimits limits = {});

  void start();
  Task<void> stop();

  // Everything that was let in under an older map than this one has ended: what that map does not
  // allow any more has no effect from here on.
  MapEpoch settled_epoch();
  // Waits until settled_epoch() is newer than `settled`, or purges_done() are not `purges` many.
  // Error: the token's reason.
  Task<Result<void>> wait_news(MapEpoch settled, std::size_t purges, CancelToken token);
  // What was given back, until the map shows that it is known.
  std::vector<PurgeDone> purges_done() const { return purger_.done(); }

  PgEpoch epoch_of(const wire::PgAddress& pg) const override;
  Task<Result<wire::PgHelloReply>> handle(wire::CallContext context,
                                          wire::PgHello request) override;
  Task<Result<wire::ReadResult>> handle(wire::CallContext context,
                                        wire::ReadRequest request) override;
  Task<Result<wire::Changed>> handle(wire::CallContext context, wire::WriteRequest request,
                                     Buffer data) override;
  Task<Result<wire::Changed>> handle(wire::CallContext context, wire::TrimRequest request) override;
  Task<Result<wire::Changed>> handle(wire::CallContext context,
                                     wire::WriteZeroesRequest request) override;
  Task<Result<wire::Changed>> handle(wire::CallContext context,
                                     wire::RemoveRequest request) override;
  Task<Result<wire::Changed>> handle(wire::CallContext context,
                                     wire::BarrierRequest request) override;
  Task<Result<wire::StatusReply>> handle(wire::CallContext context,
                                         wire::StatusRequest request) override;

 private:
  enum class ChangeKind : std::uint8_t { write, zero, write_zeroes, remove };
  // What a client asks for. Lives in the frame of handle().
  struct Change {
    ChangeKind kind = ChangeKind::write;
    wire::ObjectAddress object;
    wire::Range range;
    wire::Origin origin;
    std::span<const std::byte> data{};           // of a write: the bytes of the range
    std::span<const std::uint32_t> checksums{};  // one for each block or part of one
  };
  // A change on its way: what it was asked, who admitted it, whose order it is in.
  struct Passage {
    const Change* change = nullptr;
    AdmissionQuestion question;
    SessionKey session;
    std::shared_ptr<const ClusterMap> map;  // that admitted it
    std::shared_ptr<LedGroup> group;
    ObjectKey key;
  };
  // What goes to the store: whole blocks.
  struct StoreChange {
    ObjectKey key;
    BlockRange blocks;
    std::span<const std::byte> data{};  // empty: zeros
    std::span<const std::uint32_t> checksums{};
    bool whole_object = false;
  };
  using GroupName = std::pair<PoolId, PgNumber>;

  // On the way in. Gives the map that admitted it.
  Task<Result<std::shared_ptr<const ClusterMap>>> admit(AdmissionQuestion question,
                                                        Deadline deadline);
  AdmissionAnswer ask(const ClusterMap& map, const AdmissionQuestion& question) const;
  Result<void> check_peer(const wire::CallContext& context,
                          const wire::Attachment& attachment) const;
  std::shared_ptr<LedGroup> group_of(const wire::PgAddress& pg);

  // Changes: image_change.cc.
  Task<Result<wire::Changed>> run_change(wire::CallContext context, const Change* change);
  Task<Result<wire::Changed>> execute(Passage* passage);
  Task<Result<wire::Changed>> write(Passage* passage);
  Task<Result<wire::Changed>> write_merged(Passage* passage);
  Task<Result<wire::Changed>> zero(Passage* passage, bool keep_allocated);
  Task<Result<wire::Changed>> zero_part(Passage* passage, wire::Range part, bool keep_allocated);
  Task<Result<wire::Changed>> write_zero_blocks(Passage* passage, BlockRange blocks);
  Task<Result<wire::Changed>> commit(Passage* passage, StoreChange change);
  Result<void> check_again(Passage& passage) const;
  Task<Result<void>> apply(StoreChange change, WriteStamp stamp);

  // Reads: image_read.cc. The lock holds the blocks when the object's name is given.
  Task<Result<ObjectKey>> enter_read(wire::CallContext context, AdmissionQuestion question,
                                     std::optional<RangeLock<ObjectKey>>* lock);
  Task<Result<wire::ReadResult>> read_blocks(ObjectKey key, wire::Range range);
  Task<Result<std::vector<AllocationRun>>> runs_to_read(ObjectKey key, BlockRange blocks);

  // PurgeTarget.
  Task<Result<void>> purge_object(PurgeTask task, ObjectKey key,
                                  std::uint32_t first_block) override;
  void purge_ended() override { news_.notify_all(); }

  Task<void> follow_map();
  void forget_what_is_gone();
  void change_ended(MapEpoch epoch);

  Env& env_;
  MapSource& map_;
  Store& store_;
  const OsdRun run_;
  const ImageServiceLimits limits_;
  std::map<GroupName, std::shared_ptr<LedGroup>> groups_;
  RangeLockTable<ObjectKey> locks_;
  // Changes at the store, by the epoch of the map that admitted them.
  std::map<MapEpoch, std::uint32_t> acting_;
  MapEpoch settled_told_;  // the highest that settled_epoch() has given
  Condition news_;         // for wait_news()
  CancelSource stopping_;
  Gate operations_;
  Purger purger_;
  Scope scope_;
};

// What a store's error is to a client.
Error to_remote(const Error& error);
// The blocks that a range touches.
BlockRange blocks_of(wire::Range range);

}  // namespace sarsen
