#include "dataplane/mon/machine/map_machine.h"

#include <set>

#include "dataplane/placement/map_bounds.h"
#include "tests/unit/mon/mon_support.h"

namespace sarsen {
namespace {

// ------------------------------------------------------------------------------------------- OSDs

// Placement groups without a member serve nobody: the first OSD takes them all.
TEST(MapMachineOsd, the_first_osd_becomes_the_member_of_every_group_and_leads_after_its_boot) {
  TestCluster cluster;
  const OsdId osd = cluster.add_osd(1);
  for (const PgConfiguration& group : cluster.pool().groups) {
    EXPECT_EQ(group.in_sync, std::vector<OsdId>{osd});
    EXPECT_FALSE(group.active) << "it has not booted";
  }
  cluster.run(cluster.boot_of(1, 1));
  for (const PgConfiguration& group : cluster.pool().groups) EXPECT_TRUE(group.has_primary(osd));
  EXPECT_TRUE(cluster.map().osds.at(osd).up);
  EXPECT_EQ(cluster.map().osds.at(osd).incarnation, 1u);
}

// Without data there is nothing to move, so several OSDs share the groups from the start.
TEST(MapMachineOsd, groups_are_dealt_evenly_while_the_pool_has_no_image) {
  TestCluster cluster;
  const OsdId first = cluster.add_osd(1);
  cluster.run(cluster.boot_of(1, 1));
  const OsdId second = cluster.add_osd(2);
  std::map<OsdId, int> groups;
  for (const PgConfiguration& group : cluster.pool().groups) ++groups[group.in_sync.at(0)];
  EXPECT_EQ(groups[first], 2);
  EXPECT_EQ(groups[second], 2);
  EXPECT_TRUE(cluster.group(0).active) << "the first OSD goes on with what it kept";
  EXPECT_FALSE(cluster.group(1).active) << "the second has not booted";
}

// Nothing moves data yet: a group that changed its member would lose what is in it.
TEST(MapMachineOsd, an_osd_that_comes_after_the_first_image_gets_no_group) {
  TestCluster cluster;
  cluster.with_image();
  const PoolEntry before = cluster.pool();
  cluster.add_osd(2);
  EXPECT_EQ(cluster.pool(), before);
}

// The command line may repeat a call whose answer was lost.
TEST(MapMachineOsd, the_same_device_gets_the_same_id) {
  TestCluster cluster;
  const OsdId osd = cluster.add_osd(1);
  EXPECT_FALSE(cluster.changes(CreateOsd{device_id(1), "elsewhere"}));
  EXPECT_EQ(cluster.map().osds.size(), 1u);
  EXPECT_EQ(cluster.add_osd(1), osd);
}

// Two runs of an OSD must not issue the same (epoch, sequence): readers would mix their records.
TEST(MapMachineOsd, every_boot_raises_the_epoch_of_every_group_it_leads) {
  TestCluster cluster;
  cluster.add_osd(1);
  cluster.run(cluster.boot_of(1, 1));
  const PgEpoch first = cluster.group(3).epoch;
  cluster.run(cluster.boot_of(1, 2));
  EXPECT_GT(cluster.group(3).epoch, first) << "I-MAP-1";
}

// A boot whose answer was lost is asked again; it is not a second run.
TEST(MapMachineOsd, a_boot_that_is_repeated_is_one_boot) {
  TestCluster cluster;
  const OsdId osd = cluster.add_osd(1);
  const OsdBoot boot = cluster.boot_of(1, 5);
  cluster.run(boot);
  const ClusterMap after = cluster.map();
  EXPECT_FALSE(cluster.changes(boot));
  EXPECT_EQ(cluster.map(), after);

  cluster.run(MarkOsd{osd, 1, false});
  EXPECT_TRUE(cluster.changes(boot)) << "it was taken for silent meanwhile";
  EXPECT_TRUE(cluster.map().osds.at(osd).up);
  EXPECT_EQ(cluster.map().osds.at(osd).incarnation, 1u);
}

// Rule R5: an older copy of a device lacks writes that were acknowledged since.
TEST(MapMachineOsd, a_start_counter_that_does_not_rise_is_refused) {
  TestCluster cluster;
  cluster.add_osd(1);
  cluster.run(cluster.boot_of(1, 5));
  EXPECT_TRUE(is(cluster.refused(cluster.boot_of(1, 4)), MonError::boot_refused));
  OsdBoot copy = cluster.boot_of(1, 5);
  copy.boot_id = 77;
  const Error error = cluster.refused(copy);
  EXPECT_TRUE(is(error, MonError::boot_refused)) << "a copy of the device runs elsewhere";
  EXPECT_NE(error.message().find("5 times"), std::string::npos) << error.message();
}

// Rule R5: what stands under an OSD's number must be its own device, of this cluster.
TEST(MapMachineOsd, another_device_or_cluster_is_refused) {
  TestCluster cluster;
  cluster.add_osd(1);
  OsdBoot other_device = cluster.boot_of(1, 1);
  other_device.device = device_id(9);
  EXPECT_TRUE(is(cluster.refused(other_device), MonError::boot_refused));
  OsdBoot other_cluster = cluster.boot_of(1, 1);
  other_cluster.cluster[0] = 8;
  EXPECT_TRUE(is(cluster.refused(other_cluster), MonError::wrong_cluster));
  OsdBoot unknown = cluster.boot_of(1, 1);
  unknown.osd = OsdId(42);
  EXPECT_TRUE(is(cluster.refused(unknown), MonError::not_found));
}

// Silence is no new configuration with one copy: nobody else could lead.
TEST(MapMachineOsd, marking_an_osd_down_leaves_its_groups_and_an_older_run_marks_nothing) {
  TestCluster cluster;
  const OsdId osd = cluster.add_osd(1);
  cluster.run(cluster.boot_of(1, 1));
  cluster.run(cluster.boot_of(1, 2));
  EXPECT_FALSE(cluster.changes(MarkOsd{osd, 1, false})) << "of the run before";
  const PoolEntry before = cluster.pool();
  EXPECT_TRUE(cluster.changes(MarkOsd{osd, 2, false}));
  EXPECT_FALSE(cluster.map().osds.at(osd).up);
  EXPECT_EQ(cluster.pool(), before);
}

// A device that could not be formatted must not keep groups of the pool, nor its number for
// another.
TEST(MapMachineOsd, an_osd_that_never_ran_can_be_forgotten_and_its_id_is_not_used_again) {
  TestCluster cluster;
  const OsdId osd = cluster.add_osd(1);
  cluster.run(ForgetOsd{osd, device_id(1)});
  EXPECT_TRUE(cluster.map().osds.empty());
  EXPECT_TRUE(cluster.group(0).in_sync.empty());
  EXPECT_GT(cluster.add_osd(2), osd) << "I-MAP-3";
  cluster.run(cluster.boot_of(2, 1));
  const OsdId second = cluster.map().osds.begin()->first;
  EXPECT_TRUE(is(cluster.refused(ForgetOsd{second, device_id(2)}), MonError::in_use))
      << "it may hold data";
}

// ----------------------------------------------------------------------------------------- images

// What people type must come out as they expect from rbd: whole blocks, unique names, new ids.
TEST(MapMachineImage, is_created_thin_with_a_size_rounded_up_to_whole_blocks) {
  TestCluster cluster;
  cluster.run(CreateImage{kDisk, 10'000});
  const ImageEntry& image = *cluster.image();
  EXPECT_EQ(image.size_bytes, 12'288u);
  EXPECT_EQ(image.family, image.placement_seed);
  EXPECT_EQ(image.created_wall_time_ns, kWallTimeNs);
  EXPECT_TRUE(is(cluster.refused(CreateImage{kDisk, 4096}), MonError::exists));
}

TEST(MapMachineImage, nonsense_is_refused_with_what_would_be_accepted) {
  TestCluster cluster;
  for (const char* name : {"", "a/b", "a b", "-x", ".hidden", "caf\xc3\xa9"}) {
    EXPECT_TRUE(is(cluster.refused(CreateImage{{"rbd", name}, 4096}), MonError::bad_request))
        << name;
  }
  EXPECT_TRUE(is(cluster.refused(CreateImage{{"rbd", std::string(256, 'a')}, 4096}),
                 MonError::bad_request));
  EXPECT_TRUE(is(cluster.refused(CreateImage{kDisk, 0}), MonError::bad_request));
  EXPECT_TRUE(is(cluster.refused(CreateImage{kDisk, MapBounds::kImageBytesMax + 1}),
                 MonError::bad_request));
  EXPECT_TRUE(is(cluster.refused(CreateImage{{"nopool", "a"}, 4096}), MonError::not_found));
}

// Blocks that a smaller image gave up must not show in the part that it gets later.
TEST(MapMachineImage, cannot_grow_before_what_it_gave_up_is_purged) {
  TestCluster cluster;
  cluster.with_image();
  EXPECT_TRUE(is(cluster.refused(ResizeImage{kDisk, kMiB, false}), MonError::bad_request));
  cluster.run(ResizeImage{kDisk, kMiB, true});
  EXPECT_TRUE(cluster.image()->purging);
  EXPECT_EQ(cluster.image()->purge_from_bytes, kMiB);
  EXPECT_TRUE(is(cluster.refused(ResizeImage{kDisk, 2 * kMiB, false}), MonError::busy));
  for (std::uint32_t group = 0; group < 4; ++group) cluster.run(cluster.purged(group, 1));
  EXPECT_FALSE(cluster.image()->purging);
  cluster.run(ResizeImage{kDisk, 2 * kMiB, false});
  EXPECT_EQ(cluster.image()->size_bytes, 2 * kMiB);
}

// An answer to the first purge must not end the second, which covers more.
TEST(MapMachineImage, an_answer_to_an_earlier_purge_does_not_count) {
  TestCluster cluster;
  cluster.with_image();
  cluster.run(ResizeImage{kDisk, 2 * kMiB, true});
  cluster.run(cluster.purged(0, 1));
  cluster.run(ResizeImage{kDisk, kMiB, true});
  EXPECT_TRUE(cluster.image()->purged.empty());
  EXPECT_FALSE(cluster.changes(cluster.purged(0, 1)));
  EXPECT_TRUE(cluster.changes(cluster.purged(0, 2)));
  EXPECT_FALSE(cluster.changes(cluster.purged(0, 2))) << "repeated";
}

// Whoever does not lead a group knows nothing about what it holds.
TEST(MapMachineImage, only_the_present_run_of_the_primary_can_say_that_it_has_purged) {
  TestCluster cluster;
  cluster.with_image();
  cluster.run(RemoveImage{kDisk});
  NotePurged old_run = cluster.purged(0, 1);
  old_run.incarnation = 0;
  EXPECT_FALSE(cluster.changes(old_run));
  NotePurged outside = cluster.purged(4, 1);
  EXPECT_FALSE(cluster.changes(outside)) << "there is no group 4";
  const OsdId other = cluster.add_osd(2);
  cluster.run(cluster.boot_of(2, 1));
  NotePurged foreign = cluster.purged(0, 1);
  foreign.osd = other;
  EXPECT_FALSE(cluster.changes(foreign));
}

// Space of a removed image must not be found by a new one of its name (I-MON-3).
TEST(MapMachineImage, the_name_is_free_when_every_group_has_purged) {
  TestCluster cluster;
  cluster.with_image();
  const ImageId id = cluster.image()->id;
  cluster.run(RemoveImage{kDisk});
  EXPECT_FALSE(cluster.changes(RemoveImage{kDisk})) << "repeated";
  EXPECT_TRUE(is(cluster.refused(CreateImage{kDisk, 4096}), MonError::busy));
  for (std::uint32_t group = 0; group < 4; ++group) {
    ASSERT_NE(cluster.image(), nullptr) << group;
    cluster.run(cluster.purged(group, 1));
  }
  EXPECT_EQ(cluster.image(), nullptr);
  cluster.run(CreateImage{kDisk, 4096});
  EXPECT_GT(cluster.image()->id, id) << "I-MAP-3";
  EXPECT_NE(cluster.image()->family, id.value) << "I-MAP-3";
}

// A pool without OSDs holds nothing that would have to be given back.
TEST(MapMachineImage, without_members_a_removed_image_is_gone_at_once) {
  TestCluster cluster;
  cluster.run(CreateImage{kDisk, 4096});
  cluster.run(RemoveImage{kDisk});
  EXPECT_EQ(cluster.image(), nullptr);
}

// ------------------------------------------------------------------------------------ attachments

AttachRequest attach(const TestCluster& cluster, HolderId holder,
                     AttachMode mode = AttachMode::single_writer, AttachEpoch go_on = {}) {
  return {.image = cluster.image()->id, .holder = holder, .mode = mode, .continue_epoch = go_on};
}

// Two writers that do not know of each other destroy a file system (I-MON-1).
TEST(MapMachineAttach, a_single_writer_keeps_others_out_and_is_named) {
  TestCluster cluster;
  cluster.with_image();
  cluster.run(attach(cluster, kNodeA));
  for (const AttachMode mode :
       {AttachMode::single_writer, AttachMode::multi_writer, AttachMode::read_only}) {
    const Error error = cluster.refused(attach(cluster, kNodeB, mode));
    EXPECT_TRUE(is(error, MonError::in_use));
    EXPECT_NE(error.message().find("holder 11"), std::string::npos) << error.message();
  }
}

TEST(MapMachineAttach, several_writers_and_readers_share_but_no_single_writer_joins_them) {
  TestCluster cluster;
  cluster.with_image();
  cluster.run(attach(cluster, kNodeA, AttachMode::multi_writer));
  cluster.run(attach(cluster, kNodeB, AttachMode::read_only));
  EXPECT_EQ(cluster.image()->attachments.size(), 2u);
  EXPECT_TRUE(is(cluster.refused(attach(cluster, HolderId(13))), MonError::in_use));
}

// A node that lost everything must get its image back, and what is left of its past must not write.
TEST(MapMachineAttach, the_same_holder_gets_a_new_epoch_and_its_older_one_is_fenced) {
  TestCluster cluster;
  cluster.with_image();
  cluster.run(attach(cluster, kNodeA));
  const AttachEpoch first = cluster.image()->last_attach_epoch;
  cluster.run(attach(cluster, kNodeA));
  const AttachEpoch second = cluster.image()->last_attach_epoch;
  EXPECT_GT(second, first) << "I-MAP-2";
  EXPECT_EQ(cluster.image()->find_attachment(kNodeA, first), nullptr);
  EXPECT_NE(cluster.image()->find_attachment(kNodeA, second), nullptr);
  EXPECT_EQ(cluster.image()->attachments.size(), 1u);
}

// blockd restarts under its devices: it must learn whether it is still the holder it was.
TEST(MapMachineAttach, continuing_gives_the_same_epoch_or_says_that_it_is_gone) {
  TestCluster cluster;
  cluster.with_image();
  cluster.run(attach(cluster, kNodeA));
  const AttachEpoch epoch = cluster.image()->last_attach_epoch;
  EXPECT_FALSE(cluster.changes(attach(cluster, kNodeA, AttachMode::single_writer, epoch)));
  EXPECT_TRUE(
      is(cluster.refused(attach(cluster, kNodeA, AttachMode::read_only, epoch)), MonError::gone));
  cluster.run(DetachRequest{cluster.image()->id, kNodeA, {}, true});
  EXPECT_TRUE(is(cluster.refused(attach(cluster, kNodeA, AttachMode::single_writer, epoch)),
                 MonError::gone));
}

// Epochs are what fences: one that was used twice would let an old writer in again.
TEST(MapMachineAttach, epochs_are_never_used_twice) {
  TestCluster cluster;
  cluster.with_image();
  std::set<AttachEpoch> seen;
  for (int i = 0; i < 5; ++i) {
    cluster.run(attach(cluster, i % 2 == 0 ? kNodeA : kNodeB));
    EXPECT_TRUE(seen.insert(cluster.image()->last_attach_epoch).second) << "I-MAP-2";
    const auto& held = cluster.image()->attachments.at(0);
    cluster.run(DetachRequest{cluster.image()->id, held.holder, held.epoch, false});
  }
}

TEST(MapMachineAttach, another_mode_of_the_same_holder_needs_a_detach_first) {
  TestCluster cluster;
  cluster.with_image();
  cluster.run(attach(cluster, kNodeA));
  EXPECT_TRUE(
      is(cluster.refused(attach(cluster, kNodeA, AttachMode::read_only)), MonError::in_use));
}

// A detach whose answer was lost is asked again, and must not end a newer attachment.
TEST(MapMachineAttach, detaching_twice_succeeds_and_ends_only_what_was_named) {
  TestCluster cluster;
  cluster.with_image();
  cluster.run(attach(cluster, kNodeA));
  const ImageId image = cluster.image()->id;
  const AttachEpoch first = cluster.image()->last_attach_epoch;
  cluster.run(DetachRequest{image, kNodeA, first, false});
  cluster.run(attach(cluster, kNodeA));
  EXPECT_FALSE(cluster.changes(DetachRequest{image, kNodeA, first, false}));
  EXPECT_EQ(cluster.image()->attachments.size(), 1u);
  EXPECT_TRUE(is(cluster.refused(DetachRequest{image, kNodeA, AttachEpoch(9), false}),
                 MonError::not_found));
  EXPECT_TRUE(is(cluster.refused(DetachRequest{image, kNodeA, AttachEpoch(0), false}),
                 MonError::bad_request));
}

// Data that somebody is using is not destroyed by a command.
TEST(MapMachineAttach, an_attached_image_is_neither_removed_nor_made_smaller) {
  TestCluster cluster;
  cluster.with_image();
  cluster.run(attach(cluster, kNodeA));
  const Error error = cluster.refused(RemoveImage{kDisk});
  EXPECT_TRUE(is(error, MonError::in_use));
  EXPECT_NE(error.message().find("holder 11"), std::string::npos);
  EXPECT_TRUE(is(cluster.refused(ResizeImage{kDisk, kMiB, true}), MonError::in_use));
  cluster.run(ResizeImage{kDisk, 16 * kMiB, false});
}

TEST(MapMachineAttach, an_image_that_is_removed_takes_no_holder) {
  TestCluster cluster;
  cluster.with_image();
  cluster.run(RemoveImage{kDisk});
  EXPECT_TRUE(is(cluster.refused(attach(cluster, kNodeA)), MonError::busy));
}

// ------------------------------------------------------------------------------------------- all

// The simulator and a standby decide the same from the same commands.
TEST(MapMachine, the_same_commands_give_the_same_state) {
  const auto play = [] {
    TestCluster cluster;
    cluster.with_image();
    cluster.run(attach(cluster, kNodeA));
    cluster.run(cluster.boot_of(1, 2));
    return cluster.state();
  };
  EXPECT_EQ(play(), play());
}

TEST(MapMachine, a_refused_command_names_the_class_of_its_error) {
  const TestCluster cluster;
  EXPECT_EQ(cluster.refused(RemoveImage{kDisk}).error_class(), ErrorClass::invalid);
  EXPECT_FALSE(create_cluster({.pool = "a/b"}).has_value());
  EXPECT_FALSE(create_cluster({.group_bits = 17}).has_value());
}

}  // namespace
}  // namespace sarsen
