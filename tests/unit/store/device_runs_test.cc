#include "dataplane/store/device_runs.h"

#include <gtest/gtest.h>

namespace sarsen {
namespace {

DeviceRun run(std::uint64_t start, std::uint32_t blocks) {
  return {BlockIndex(start), blocks};
}

// An extent that the index took over may lie anywhere in one that a newer write superseded: what is
// left over must come back, to the block.
TEST(DeviceRuns, what_is_outside_of_others_keeps_every_block_once) {
  std::vector<DeviceRun> others = {run(30, 5), run(10, 2), run(12, 3)};
  sort_and_join(others);
  EXPECT_EQ(others, (std::vector<DeviceRun>{run(10, 5), run(30, 5)}));
  EXPECT_EQ(parts_outside(run(8, 30), others),
            (std::vector<DeviceRun>{run(8, 2), run(15, 15), run(35, 3)}));
  EXPECT_EQ(parts_outside(run(11, 3), others), std::vector<DeviceRun>{});
  EXPECT_EQ(parts_outside(run(15, 15), others), (std::vector<DeviceRun>{run(15, 15)}));
  EXPECT_EQ(parts_outside(run(14, 3), others), (std::vector<DeviceRun>{run(15, 2)}));
  EXPECT_EQ(parts_outside(run(34, 2), others), (std::vector<DeviceRun>{run(35, 1)}));
  EXPECT_EQ(parts_outside(run(1, 4), {}), (std::vector<DeviceRun>{run(1, 4)}));
}

}  // namespace
}  // namespace sarsen
