// One image as /dev/loopN: connection, mount, server, loop device, and their copy in the keeper.
//
// Lifecycle  map() makes a device, or take_over() continues the one of a predecessor; then stop()
// to
//            leave it to the next server, or unmap() to end it. Destroyed after either returned, or
//            after map() or take_over() failed (which undo what they did).
// Shard      One, that of the target. Calls of the keeper and of the loop helper run on
// env.blocking,
//            which must have a thread to spare, while the shard serves what they wait for.
// Borrows    Everything in DeviceContext, and the target.
// Errors     Those of make_mount, LoopHelper and KeeperLink; bad_argument for a foreign state.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dataplane/blockd/fuse/device_state.h"
#include "dataplane/blockd/fuse/fuse_mount.h"
#include "dataplane/blockd/fuse/fuse_server.h"
#include "dataplane/blockd/fuse/keeper_link.h"
#include "dataplane/blockd/fuse/loop_helper.h"
#include "dataplane/blockd/fuse/ring_channel.h"
#include "dataplane/client/block_target.h"

namespace sarsen::fuse {

// Labels of our loop devices start with it, unless a context says otherwise.
inline constexpr std::string_view kLabelPrefix = "sarsen:";

struct DeviceContext {
  Env& env;
  Reactor& reactor;
  KeeperLink& keeper;
  const LoopHelper& helper;
  // Of the devices of this server: what it may sweep.
  std::string label_prefix{kLabelPrefix};
};

struct MapOptions {
  std::string name;  // of the image; the keeper's name for the device
  std::uint32_t sector_bytes = 4096;
  std::vector<std::byte> user;  // see DeviceState::user
};

class Device {
 public:
  Device(DeviceContext context, BlockTarget& target)
      : context_(context), target_(target), serving_(context.env.executor) {}

  Task<Result<void>> map(MapOptions options);
  // `held` is what the keeper gave; the ServerLock is held. A device that the keeper has failed is
  // taken over without being served, to be unmapped.
  Task<Result<void>> take_over(keeper::Held held);
  // After the target's size has changed: makes it the device's.
  Task<Result<void>> resize();
  // The device ends. `overloaded` while somebody has it open: then it goes on as before, except
  // that the kernel frees it at the last close; unmap() again.
  Task<Result<void>> unmap();
  // This server ends; requests wait for the next one.
  Task<void> stop();

  const DeviceState& state() const { return state_; }
  std::string path() const { return "/dev/loop" + std::to_string(state_.loop_number); }
  ServerCounters counters() const { return server_ ? server_->counters() : ServerCounters{}; }
  // How serving ended, if it did: an aborted connection will never come back.
  const std::optional<Result<End>>& ended() const { return ended_; }

 private:
  void start_serving(keeper::Descriptor connection, std::optional<Negotiated> negotiated);
  Task<void> serve();
  Task<Result<void>> attach_and_keep(MapOptions options, Mount mount);

  DeviceContext context_;
  BlockTarget& target_;
  std::string name_;
  DeviceState state_;
  keeper::Descriptor mount_;
  std::unique_ptr<RingChannel> channel_;
  std::unique_ptr<Server> server_;
  std::optional<Result<End>> ended_;
  Scope serving_;
};

}  // namespace sarsen::fuse
