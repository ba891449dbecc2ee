// One image that is mapped on this node: attachment, session, frontend, and their traces in the
// keeper and at the mon.
//
// Lifecycle  map() makes it, or take_over() goes on with the one of a predecessor, in the
//            background. Then unmap() ends it everywhere, or stop() leaves it to the next blockd;
//            after either (unmap: when it succeeded), or a map() that failed (which undoes what it
//            did), it is destroyed.
// Order      map() attaches, opens, makes the device, and only then is it in the keeper; unmap()
//            goes back the same way. What a blockd that is killed in between leaves behind is an
//            attachment without a device, which the next map() or unmap() of this node ends.
// Shard      One.   Borrows everything in ImagesContext.
// Independent of other images but for the keeper's and the pool's threads (I-BLOCKD-3).
// Errors     Those of the mon, session, device, keeper; BlockdError.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "dataplane/base/log.h"
#include "dataplane/blockd/blockd_error.h"
#include "dataplane/blockd/buffer_share.h"
#include "dataplane/blockd/fuse/fuse_device.h"
#include "dataplane/blockd/image_state.h"
#include "dataplane/blockd/image_target.h"
#include "dataplane/blockd/sessions.h"
#include "dataplane/membership/map_source.h"
#include "dataplane/membership/mon_api.h"
#include "dataplane/runtime/cancel.h"
#include "dataplane/runtime/event.h"
#include "dataplane/runtime/scope.h"
#include "dataplane/runtime/semaphore.h"

namespace sarsen::blockd {

struct ImagesContext {
  Env& env;
  Reactor& reactor;
  MapSource& map;
  fuse::KeeperLink& keeper;
  const fuse::LoopHelper& helper;
  MonApi& mon;  // called on threads of the pool
  Sessions& sessions;
  BufferShares& shares;
  Logger log;
  HolderId holder{};
  std::string nbd_socket;    // for URIs
  std::string label_prefix;  // of this node's loop devices
  // Whether the map is the mon's own word: only that may say that an attachment is gone.
  std::function<bool()> map_confirmed = [] { return true; };
};

enum class ImagePhase : std::uint8_t {
  starting,   // no session yet; what was in flight waits
  serving,    // requests go to the cluster (and may wait there)
  fenced,     // the attachment is gone: every request answers an error
  failed,     // somebody called fail()
  detaching,  // unmapped here; the mon has still to be told
};
std::string_view name_of(ImagePhase phase);

struct ImageReport {
  ImageState state;
  ImagePhase phase = ImagePhase::starting;
  std::string device;  // /dev/loopN or an NBD URI
  std::uint64_t size_bytes = 0;
  std::string detail;  // why it does not serve; may be empty
  ImageSessionStats stats;
  std::uint32_t nbd_connections = 0;
};

// POOL/IMAGE. Error: bad_argument.
Result<ImageName> parse_image_name(const std::string& name);
// As libnbd and QEMU take it.
std::string nbd_uri(const std::string& image, const std::string& socket);

class MappedImage {
 public:
  // `state` of a new one: name, mode, frontend and sector_bytes; the rest is found out.
  MappedImage(const ImagesContext& context, ImageState state);
  ~MappedImage();

  Task<Result<void>> map();
  // `held` is what the keeper gave, of kind fuse, nbd or detach.
  void take_over(keeper::Held held);
  // in_use, unless `force`, which fails the image first.
  Task<Result<void>> unmap(bool force);
  // From now on every request answers an error at once, those in flight too.
  Task<Result<void>> fail();
  // Until a map() in progress, or the first try after a take-over, has come to its end.
  Task<Result<void>> settled();
  Task<void> stop();

  const ImageState& state() const { return state_; }
  ImagePhase phase() const;
  // The mon was told in the background: nothing is left to do.
  bool gone() const { return gone_; }
  ImageReport report() const;
  std::string device_path() const;
  // For NBD connections, which may hold it longer than this object lives.
  const std::shared_ptr<ImageTarget>& target() const { return target_; }

 private:
  Task<Result<void>> open_session(Duration open_max);
  Task<void> close_session();
  Task<Result<void>> open_and_make_frontend();
  Task<Result<void>> make_frontend();
  Task<Result<void>> continue_frontend();
  Task<void> serve_again();
  Task<void> watch();
  Task<bool> look_at_map();
  fuse::DeviceContext device_context();
  Task<Result<void>> follow_size(std::uint64_t size_bytes);
  Task<Result<void>> end_frontend(bool force);
  Task<void> detach_later();
  Task<void> leave();
  Task<void> leave_after_grace(CancelToken done);
  Task<Result<void>> attach();
  Task<Result<void>> tell_detached();
  // Every call of keeper and mon blocks.
  template <typename Call>
  auto in_keeper(Call call) {
    return env_.blocking.run(
        [keeper = &context_.keeper, call = std::move(call)] { return call(*keeper); });
  }
  template <typename Call>
  auto in_mon(Call call) {
    return env_.blocking.run([mon = &context_.mon, call = std::move(call)] { return call(*mon); });
  }

  ImagesContext context_;
  ImageState state_;
  BufferShare share_;
  Env env_;  // the shard's, with this image's share of the buffers
  std::shared_ptr<ImageTarget> target_;
  std::unique_ptr<ImageSession> session_;
  std::unique_ptr<fuse::Device> device_;
  std::optional<keeper::Held> held_;   // of the predecessor, until it is served again
  std::uint64_t announced_bytes_ = 0;  // the size that the frontend knows
  MapEpoch attached_since_{};          // the first map that has the attachment
  MapEpoch seen_{};
  bool fenced_ = false;
  bool failed_ = false;
  bool detaching_ = false;
  bool detach_scheduled_ = false;
  bool gone_ = false;
  std::string detail_;
  CancelSource stopping_;
  Event settled_;
  Semaphore changes_;  // one at a time: map, unmap, resize, the change of frontends
  Scope background_;
};

}  // namespace sarsen::blockd
