// ImageClient: the program of a client's node: opens sessions for the attachment that it was given,
// one after the other, and does random operations with several workers.
#pragma once

#include <memory>
#include <vector>

#include "dataplane/client/image_session.h"
#include "dataplane/runtime/scope.h"
#include "tests/sim/sim_node.h"
#include "tests/sim/workloads/image_judge.h"
#include "tests/sim/workloads/mon_stand_in.h"

namespace sarsen::sim {

// What all clients share; outlives them.
struct ImageClients {
  explicit ImageClients(Simulator& simulator) : judge(simulator), rng(simulator.split_rng()) {}
  ImageJudge judge;
  Rng rng;
  std::uint64_t operations_done = 0;
  std::uint64_t operations_wanted = 0;
  std::uint64_t verified = 0;  // how often a new session has read everything
  Duration call_max = seconds(1);
  // What each client has, and how many sessions it had: on the node's disk, so to say.
  std::array<AttachmentPointer, kImageClients> given;
  std::array<std::uint64_t, kImageClients> sessions{};

  bool finished() const { return operations_done >= operations_wanted; }
};

inline constexpr ImageId kSimImage{1};
inline HolderId holder_of(std::uint64_t client) {
  return HolderId(100 + client);
}

class ImageClient final : public Program {
 public:
  ImageClient(SimNode& node, MonStandIn& mon, ImageClients& clients, std::uint64_t number);

 private:
  Task<void> run();
  Task<void> serve(AttachmentPointer attachment);
  Task<bool> read_everything(AttachmentPointer attachment);
  Task<void> work(AttachmentPointer attachment, std::uint64_t worker);
  Task<void> write(AttachmentPointer attachment, BlockIndex first, std::uint32_t count);
  Task<void> zero(AttachmentPointer attachment, BlockIndex first, std::uint32_t count);
  Task<bool> read(AttachmentPointer attachment, BlockIndex first, std::uint32_t count);
  Task<void> use_sector(AttachmentPointer attachment, std::uint64_t worker);
  std::uint32_t draw_count(std::uint32_t most);
  BlockIndex draw_first(std::uint32_t count);
  bool over() const { return node_.doomed() || session_->fenced() || clients_.finished(); }

  SimNode& node_;
  ImageClients& clients_;
  const std::uint64_t number_;
  FixedMap map_;
  std::unique_ptr<ImageSession> session_;
  Scope scope_;
};

}  // namespace sarsen::sim
