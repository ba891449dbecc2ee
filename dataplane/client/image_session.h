// ImageSession: one attachment of one image as a BlockTarget. Cuts ranges into objects, finds the
// primary of each, sends with checksums, and sends again when a connection or an OSD went away.
//
// Lifecycle  open() waits for a map that has the image and the attachment; `co_await stop()` before
//            destruction ends what is under way with `stopped`.
// Shard      One; its connections are of that shard. Borrows Env and MapSource.
// Waiting    An operation waits for as long as the image cannot be served, unless operation_max
//            says less: block devices must not see an error because a daemon restarts. It ends at
//            once when the attachment is fenced: fenced() is true then, for ever.
// Order      Operations of this session that overlap, one of them a change, are sent one after the
//            other: a resend can never land on top of a later one (rule R7).
// Bounded    By what the OSDs announce per connection, and by in_flight_bytes_max.
// Errors     ClientError: out_of_range, read_only, fenced, timed_out, stopped; what OSDs answer
//            that trying again cannot mend (corrupt, io_error). no_space waits for space up to
//            no_space_max, then is an error.
#pragma once

#include <cstdint>
#include <memory>

#include "dataplane/client/block_target.h"
#include "dataplane/membership/map_source.h"
#include "dataplane/runtime/env.h"

namespace sarsen {

struct ImageSessionOptions {
  ImageId image{};
  HolderId holder{};
  AttachEpoch attach_epoch{};
  wire::SessionId session{};  // above every earlier one of this attachment
  wire::Role role = wire::Role::image_session;
  std::uint32_t tenant = 0;
  Duration operation_max{0};        // 0: no limit
  Duration no_space_max{0};         // 0: an error at once
  Duration open_max = seconds(30);  // until map and attachment are seen
  Duration call_max = seconds(15);  // one try; an OSD that is silent for longer is tried anew
  std::uint64_t in_flight_bytes_max = 64 * kMiB;
};

struct ImageSessionStats {
  std::uint64_t reads = 0;
  std::uint64_t writes = 0;
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;
  std::uint64_t resent = 0;       // tries after the first
  std::uint64_t reconnected = 0;  // connections after the first of each OSD
  std::uint32_t waiting = 0;      // operations that cannot be served now
};

class ImageSession : public BlockTarget {
 public:
  // Error: not_found (no such image within open_max), fenced (no such attachment), timed_out.
  static Task<Result<std::unique_ptr<ImageSession>>> open(const Env& env, MapSource& map,
                                                          ImageSessionOptions options);
  virtual Task<void> stop() = 0;

  // The attachment is gone: every operation answers `fenced`.
  virtual bool fenced() const = 0;
  virtual ImageSessionStats stats() const = 0;
};

}  // namespace sarsen
