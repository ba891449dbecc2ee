#include "dataplane/mon/machine/health.h"

#include <gmock/gmock.h>

#include "tests/unit/mon/mon_support.h"

namespace sarsen {
namespace {

std::vector<std::string> checks(const ClusterStatus& status) {
  std::vector<std::string> ids;
  for (const HealthCheck& check : status.checks) ids.push_back(check.id);
  return ids;
}

OsdReport report(std::uint64_t used_percent) {
  return {.incarnation = 1,
          .space = {.total_blocks = 1000,
                    .free_blocks = 400 * (100 - used_percent) / 40,
                    .unassigned_blocks = 0}};
}

// The first thing that a new cluster says is what is to be done next.
TEST(Health, a_pool_without_osds_is_a_warning_and_no_data_is_lost) {
  const TestCluster cluster;
  const ClusterStatus status = cluster_status(cluster.map(), {});
  EXPECT_EQ(status.health, Health::warn);
  EXPECT_THAT(checks(status), testing::ElementsAre("MON_EMPTY_POOL"));
}

TEST(Health, a_cluster_that_serves_is_ok) {
  TestCluster cluster;
  cluster.with_image();
  const ClusterStatus status = cluster_status(cluster.map(), {{OsdId(0), {.report = report(10)}}});
  EXPECT_EQ(status.health, Health::ok) << testing::PrintToString(checks(status));
  EXPECT_EQ(status.pools.at(0).groups_active, 4u);
  EXPECT_EQ(status.pools.at(0).provisioned_bytes, 8 * kMiB);
  EXPECT_EQ(status.osds.at(0).groups_led, 4u);
  EXPECT_EQ(used_blocks(status.osds.at(0).space), 100u);
}

// With one copy, an OSD that is down is data that cannot be reached: the worse comes first.
TEST(Health, an_osd_that_is_down_makes_its_groups_inactive) {
  TestCluster cluster;
  cluster.with_image();
  cluster.run(MarkOsd{OsdId(0), 1, false});
  const ClusterStatus status = cluster_status(cluster.map(), {});
  EXPECT_EQ(status.health, Health::err);
  EXPECT_THAT(checks(status), testing::ElementsAre("PG_INACTIVE", "OSD_DOWN"));
  EXPECT_EQ(status.pools.at(0).groups_active, 0u);
}

TEST(Health, what_reports_tell_becomes_checks_that_operators_know) {
  TestCluster cluster;
  cluster.with_image();
  const auto of = [&](const OsdReport& latest) {
    return checks(cluster_status(cluster.map(), {{OsdId(0), {.report = latest}}}));
  };
  EXPECT_THAT(of(report(84)), testing::IsEmpty());
  EXPECT_THAT(of(report(86)), testing::ElementsAre("OSD_NEARFULL"));
  EXPECT_THAT(of(report(95)), testing::ElementsAre("OSD_FULL"));
  OsdReport failing = report(10);
  failing.read_only = true;
  failing.corrupt_blocks_found = 3;
  EXPECT_THAT(of(failing), testing::ElementsAre("CORRUPT_BLOCKS", "OSD_DEVICE_READ_ONLY"));
}

}  // namespace
}  // namespace sarsen
