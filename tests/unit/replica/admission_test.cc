#include "dataplane/replica/admission.h"

#include <gtest/gtest.h>

#include "dataplane/wire/error.h"
#include "tests/unit/replica/replica_map.h"

namespace sarsen {
namespace {

using test::kHolder;
using test::kImage;
using test::kOsd;
using test::kPool;
using wire::RemoteError;

class Admission : public testing::Test {
 protected:
  AdmissionQuestion question() {
    return {.pg = {kPool, placement_group(map.pools[kPool], map.images[kImage], ObjectNumber(0)),
                   PgEpoch(5)},
            .image = kImage,
            .attachment = {kHolder, AttachEpoch(3), wire::SessionId(1)},
            .branch = BranchId(0),
            .object = ObjectNumber(0),
            .range = {0, 4096},
            .changes = true};
  }
  // What is refused, and whether a newer map could change that.
  void expect(const AdmissionQuestion& asked, RemoteError code, bool map_may_be_old) {
    const AdmissionAnswer answer = examine(map, run, asked);
    ASSERT_TRUE(answer.refusal);
    EXPECT_TRUE(wire::is(*answer.refusal, code)) << answer.refusal->message();
    EXPECT_EQ(answer.map_may_be_old, map_may_be_old) << answer.refusal->message();
  }
  PgConfiguration& group() { return map.pools[kPool].groups[question().pg.number.value]; }

  ClusterMap map = test::replica_map();
  OsdRun run{.osd = kOsd, .incarnation = 1};
};

TEST_F(Admission, lets_in_what_the_map_allows) {
  const AdmissionAnswer answer = examine(map, run, question());
  EXPECT_FALSE(answer.refusal);
  EXPECT_EQ(answer.image, map.find_image(kImage));
}

// I-MAP-1 holds only if an OSD serves nobody before the map has its own start.
TEST_F(Admission, an_osd_serves_only_in_the_run_that_the_map_has) {
  run.incarnation = 2;
  expect(question(), RemoteError::inactive, true);
  run.incarnation = 0;
  expect(question(), RemoteError::inactive, false);
}

// A client with an older map gets the newer one; a client with a newer map is waited with.
TEST_F(Admission, epochs_and_leaders_must_agree) {
  AdmissionQuestion older = question();
  older.pg.epoch = PgEpoch(4);
  expect(older, RemoteError::stale_epoch, false);
  AdmissionQuestion newer = question();
  newer.pg.epoch = PgEpoch(6);
  expect(newer, RemoteError::stale_epoch, true);
  group().in_sync = {OsdId(8)};
  expect(question(), RemoteError::not_primary, false);
  expect(newer, RemoteError::not_primary, true);
  group().active = false;
  expect(question(), RemoteError::inactive, false);
}

// R6: whether a pair is gone or yet to come is told by the latest attach epoch.
TEST_F(Admission, a_pair_that_is_not_in_the_set_is_fenced) {
  AdmissionQuestion gone = question();
  gone.attachment.epoch = AttachEpoch(2);
  expect(gone, RemoteError::fenced, false);
  AdmissionQuestion to_come = question();
  to_come.attachment.epoch = AttachEpoch(4);
  expect(to_come, RemoteError::fenced, true);
  AdmissionQuestion other = question();
  other.attachment.holder = HolderId(99);
  expect(other, RemoteError::fenced, false);
  map.images[kImage].state = ImageState::removing;
  expect(question(), RemoteError::fenced, false);
  const AdmissionQuestion asked = question();
  map.images.erase(kImage);
  expect(asked, RemoteError::not_found, true);
}

TEST_F(Admission, a_reader_does_not_change_anything) {
  map.images[kImage].attachments[0].mode = AttachMode::read_only;
  expect(question(), RemoteError::read_only, false);
  AdmissionQuestion read = question();
  read.changes = false;
  EXPECT_FALSE(examine(map, run, read).refusal);
}

// An object in the wrong group would be in no index range that its group's other members have.
TEST_F(Admission, objects_and_ranges_must_be_where_the_map_says) {
  AdmissionQuestion elsewhere = question();
  elsewhere.pg.number = PgNumber(1 - elsewhere.pg.number.value);
  expect(elsewhere, RemoteError::bad_request, false);
  map.images[kImage].size_bytes = 8192;
  AdmissionQuestion beyond = question();
  beyond.range = {4096, 4097};
  expect(beyond, RemoteError::stale_epoch, true);
  beyond.range = {4096, 4096};
  EXPECT_FALSE(examine(map, run, beyond).refusal);
  beyond.object = ObjectNumber(~std::uint64_t{0});
  expect(beyond, RemoteError::stale_epoch, true);
}

}  // namespace
}  // namespace sarsen
