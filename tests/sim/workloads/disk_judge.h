// DiskJudge: what a raw device may answer, sector by sector. It knows only what was asked and
// answered, never how SimDisk works, so that each checks the other.
//
// Per block it keeps `settled` (what stable media hold), `pending` (what may replace it: completed
// and un-flushed, or of unknown outcome) and `latest` (what a read must give). After power loss
// each sector may be any of the first two, until a read has shown which.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "dataplane/base/units.h"

namespace sarsen::sim {

class DiskJudge {
 public:
  // All zeros. `garbage`: a sector that was being written may hold anything after power loss.
  // `writes_fail`: a write that was in flight when the process died may have failed half-way.
  DiskJudge(std::uint64_t block_count, bool garbage, bool writes_fail)
      : garbage_(garbage), writes_fail_(writes_fail), blocks_(block_count) {}

  // Writes. Bytes are whole blocks.
  std::uint64_t begin_write(std::uint64_t first, std::vector<std::byte> bytes);
  void end_write(std::uint64_t id, bool durable);
  // It answered an error: any of its sectors may have landed.
  void failed_write(std::uint64_t id);
  // It answered that it did nothing.
  void refused_write(std::uint64_t id) { open_.erase(id); }

  std::uint64_t begin_flush() { return next_number_; }
  void end_flush(std::uint64_t began);
  // Covered writes may be lost for good, whatever later flushes say.
  void failed_flush(std::uint64_t began);

  // Nothing, or how the bytes break the promise. Settles what was uncertain.
  std::optional<std::string> end_read(std::uint64_t first, std::span<const std::byte> bytes);

  void process_died();
  void power_lost();
  // The device said that it spoilt the block: anything goes until it is written durably.
  void spoilt(std::uint64_t block);

 private:
  enum class Certainty : std::uint8_t {
    known,            // reads give `latest`
    some_write,       // the process died: the latest, or one that was in flight
    mixed,            // a write failed: any mix of sectors
    mixed_and_final,  // power was lost: the same, and what a read shows is what stays
    anything,
  };
  using Bytes = std::vector<std::byte>;
  struct Pending {
    std::uint64_t number = 0;  // order of completion
    bool uncertain = false;    // a flush that covered it failed
    Bytes bytes;
  };
  struct Block {
    Certainty certainty = Certainty::known;
    Bytes settled = Bytes(kBlockBytes);
    Bytes latest = Bytes(kBlockBytes);
    std::vector<Pending> pending;
  };
  struct Open {
    std::uint64_t first = 0;
    Bytes bytes;
    // The device lost power since it began: when it says that it is done, it was done before that.
    bool power_lost_since = false;
  };

  void add_open_writes_as_pending();
  bool sector_is_legal(const Block& block, std::span<const std::byte> sector,
                       std::size_t within) const;
  bool block_is_legal(const Block& block, std::span<const std::byte> bytes) const;

  bool garbage_;
  bool writes_fail_;
  std::vector<Block> blocks_;
  std::map<std::uint64_t, Open> open_;
  std::uint64_t next_id_ = 1;
  std::uint64_t next_number_ = 1;
};

}  // namespace sarsen::sim
