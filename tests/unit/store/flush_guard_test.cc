#include "dataplane/store/flush_guard.h"

#include <gtest/gtest.h>

#include "tests/sim/sim_disk_ports.h"
#include "tests/unit/store/store_fixture.h"

namespace sarsen {
namespace {

class FlushGuardTest : public StoreFixture {};

// I-STORE-10: a device that failed a flush has dropped what it should have kept, and says success
// to the next flush, which would count for data that is gone.
TEST_F(FlushGuardTest, no_flush_succeeds_after_one_that_failed) {
  FlushGuard guard(node.blocking_disk(), node.env().faults);
  EXPECT_TRUE(guard.flush());
  sim.set_rate(sim::FaultKind::d9_flush_error, 1.0);
  EXPECT_FALSE(guard.flush());
  sim.set_rate(sim::FaultKind::d9_flush_error, 0);
  EXPECT_TRUE(node.blocking_disk().flush()) << "the device alone forgets its failure";
  EXPECT_FALSE(guard.flush());
}

}  // namespace
}  // namespace sarsen
