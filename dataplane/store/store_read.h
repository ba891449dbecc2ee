// The read side of a store: finds where blocks are, reads them, verifies every checksum.
//
// Invariants
//   I-STORE-5  No byte is returned that does not match the checksum which the overlay or the index
//   has
//              for it; what does not is named as corrupt.
#pragma once

#include "dataplane/store/store_state.h"

namespace sarsen {

class StoreRead {
 public:
  explicit StoreRead(StoreState& state) : state_(state) {}

  Task<Result<ReadOutcome>> read(ObjectKey object, std::uint32_t first_block,
                                 std::span<std::byte> into);
  Task<Result<std::vector<AllocationRun>>> allocation(ObjectKey object, BlockRange range);

 private:
  enum class Source : std::uint8_t { zeros, device, corrupt };
  struct BlockPlan {
    Source source = Source::zeros;
    BlockIndex location;
    std::uint32_t checksum = 0;
  };
  struct Run {
    std::uint32_t first = 0;  // index into the plan
    std::uint32_t count = 0;
    BlockIndex location;
  };

  // The leaves that cover the range, as far as the overlay does not answer for all of their blocks.
  Task<Result<std::vector<LeafPointer>>> leaves_of(ObjectKey object, BlockRange range);
  std::vector<BlockPlan> plan(const ObjectKey& object, BlockRange range,
                              const std::vector<LeafPointer>& leaves) const;
  static std::vector<Run> runs_of(const std::vector<BlockPlan>& plan);
  // Which blocks of the run are bad.
  Task<Result<std::vector<std::uint32_t>>> read_run(Run run, std::vector<BlockPlan>* plan,
                                                    std::span<std::byte> into);
  Task<Result<bool>> read_block_again(BlockPlan block, std::span<std::byte> into);

  StoreState& state_;
};

}  // namespace sarsen
