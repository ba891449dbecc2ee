// ImageJudge: what the sessions of all clients may see of one image.
//
// Blocks     a BlockModel over a window of each object. A write that ends without an answer is
//            unknown; it has had its effect, or never will, when its client's attachment is known
//            to be gone, or its client has a new session that has read everything.
// Sectors    registers of 512 bytes, each written by one worker alone, several in one block: a
//            merge that undoes another's sector is seen by its owner.
// Attachments  an operation that began after the detach of its attachment was answered must fail.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dataplane/placement/cluster_map.h"
#include "tests/model/block_model.h"
#include "tests/sim/simulator.h"

namespace sarsen::sim {

inline constexpr std::uint64_t kImageClients = 2;
inline constexpr std::uint64_t kImageObjects = 3;
inline constexpr std::uint32_t kImageWindow = 24;        // blocks of each object
inline constexpr std::uint32_t kImageWindowStart = 500;  // not at a leaf's edge
inline constexpr std::uint64_t kImageBlocks = kImageObjects * kImageWindow;
inline constexpr std::uint32_t kRegisterBytes = 512;
inline constexpr std::uint32_t kRegisterBlock = 100;  // of the objects that have sectors
inline constexpr std::uint64_t kWorkers = 4;          // of each client

// What a client was given by the mon.
struct GivenAttachment {
  AttachEpoch epoch;
  bool detached = false;  // and the mon has answered
};
using AttachmentPointer = std::shared_ptr<GivenAttachment>;

class ImageJudge {
 public:
  explicit ImageJudge(Simulator& simulator) : simulator_(simulator), model_(1, kImageBlocks) {}

  // One operation; lives in the worker's frame, or dies with it.
  struct Operation {
    std::uint64_t client = 0;
    AttachmentPointer attachment;
    bool began_detached = false;
    std::uint64_t id = 0;
  };
  Operation begin_write(std::uint64_t client, AttachmentPointer attachment, BlockIndex first,
                        std::uint64_t count, bool zeros);
  void fill(const Operation& operation, BlockIndex first, std::span<std::byte> into) const;
  void end_write(const Operation& operation, const Result<void>& result);
  Operation begin_read(std::uint64_t client, AttachmentPointer attachment, BlockIndex first,
                       std::uint64_t count);
  void end_read(const Operation& operation, const Result<void>& result,
                std::span<const std::byte> bytes);

  struct Sector {
    std::uint64_t sent = 0;
    std::uint64_t seen = 0;  // acknowledged, or read
  };
  Sector& sector(std::uint64_t client, std::uint64_t worker) {
    return sectors_[client * kWorkers + worker];
  }
  // What the owner may find: nothing older than `least`, which it had seen before.
  void check_sector(Sector& sector, std::uint64_t least, std::uint64_t found);

  // The image was cut: these blocks are zeros from some time until end_cut() on.
  model::WriteId begin_cut(BlockIndex first, std::uint64_t count) {
    return model_.begin_zero(first, count);
  }
  void end_cut(model::WriteId id) { model_.acknowledged(id); }

  void client_crashed(std::uint64_t client);
  // It has a new session that has said hello to all groups, and read everything.
  void client_returned(std::uint64_t client);
  void detach_answered(std::uint64_t client, GivenAttachment& attachment);

  std::uint64_t blocks_checked() const { return model_.blocks_checked(); }

 private:
  void resolve();
  void judge_error(const Error& error);

  Simulator& simulator_;
  model::BlockModel model_;
  std::array<std::vector<model::WriteId>, kImageClients> open_writes_;
  std::array<std::vector<model::ReadId>, kImageClients> open_reads_;
  // A crash has left writes that may still have an effect.
  std::array<bool, kImageClients> unresolved_{};
  std::array<Sector, kImageClients * kWorkers> sectors_{};
};

}  // namespace sarsen::sim
