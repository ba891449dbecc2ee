#include <sys/stat.h>

#include "tests/unit/mon/rpc_support.h"

namespace sarsen {
namespace {

OsdBoot boot_of(const OsdCreated& osd) {
  return {.osd = osd.osd,
          .device = device_id(1),
          .cluster = osd.cluster,
          .start_counter = 1,
          .boot_id = 5,
          .address = "unix:/run/osd",
          .node = "node-1"};
}

// What blockd, OSDs and the command line call, each once and to its end.
TEST(MonRpc, images_live_from_create_to_removal) {
  MonOnSocket server;
  const auto mon = server.client();
  const ImageEntry created = mon->create_image(kDisk, 5 * kMiB).value();
  EXPECT_EQ(created, *server.mon().state()->map.find_image(PoolId(1), "disk"));
  EXPECT_EQ(mon->get_image(kDisk).value(), created);
  EXPECT_EQ(mon->list_images("rbd").value(), std::vector<ImageEntry>{created});
  EXPECT_EQ(mon->list_images("").value().size(), 1u);
  EXPECT_TRUE(is(mon->list_images("other").error(), MonError::not_found));
  EXPECT_EQ(mon->resize_image(kDisk, 8 * kMiB, false).value().size_bytes, 8 * kMiB);
  EXPECT_EQ(mon->remove_image(kDisk).value().id, created.id) << "gone at once: there is no OSD";
  EXPECT_TRUE(is(mon->get_image(kDisk).error(), MonError::not_found));
}

TEST(MonRpc, attachments_are_given_continued_and_ended) {
  MonOnSocket server;
  const auto mon = server.client();
  const ImageId image = mon->create_image(kDisk, kMiB).value().id;
  const Attached attached = mon->attach_image({.image = image, .holder = kNodeA}).value();
  EXPECT_EQ(attached.attachment.epoch, AttachEpoch(1));
  EXPECT_EQ(attached.image.attachments.size(), 1u);
  EXPECT_EQ(attached.epoch, server.mon().state()->map.epoch);

  const Error in_use = mon->attach_image({.image = image, .holder = kNodeB}).error();
  EXPECT_TRUE(is(in_use, MonError::in_use));
  EXPECT_EQ(in_use.error_class(), ErrorClass::invalid);
  EXPECT_NE(in_use.message().find("holder 11"), std::string::npos) << in_use.message();

  const AttachRequest again{.image = image, .holder = kNodeA, .continue_epoch = AttachEpoch(1)};
  EXPECT_EQ(mon->attach_image(again).value().attachment, attached.attachment);
  EXPECT_TRUE(mon->detach_image({image, kNodeA, AttachEpoch(1), false}).has_value());
  EXPECT_TRUE(is(mon->attach_image(again).error(), MonError::gone));
}

TEST(MonRpc, osds_are_created_boot_and_report) {
  MonOnSocket server;
  const auto mon = server.client();
  const OsdCreated osd = mon->create_osd(device_id(1), "node-1").value();
  EXPECT_EQ(osd.cluster, server.store.state.map.cluster);
  EXPECT_EQ(mon->create_osd(device_id(1), "node-1").value().osd, osd.osd);
  const OsdBooted booted = mon->boot_osd(boot_of(osd)).value();
  EXPECT_EQ(booted.incarnation, 1u);
  OsdBoot backwards = boot_of(osd);
  backwards.start_counter = 0;
  EXPECT_TRUE(is(mon->boot_osd(backwards).error(), MonError::boot_refused));

  OsdReport report{.osd = osd.osd, .incarnation = 1, .map_epoch = booted.epoch};
  report.space = {.total_blocks = 100, .data_blocks = 7, .free_blocks = 60};
  report.corrupt_blocks_found = 2;
  EXPECT_EQ(mon->report_osd(report).value(), booted.epoch);
  report.incarnation = 9;
  EXPECT_TRUE(is(mon->report_osd(report).error(), MonError::gone));

  const ClusterStatus status = mon->status().value();
  ASSERT_EQ(status.osds.size(), 1u);
  EXPECT_TRUE(status.osds[0].reported);
  EXPECT_EQ(status.osds[0].space.data_blocks, 7u);
  EXPECT_EQ(status.osds[0].map_epoch, booted.epoch);
  EXPECT_EQ(status.health, Health::err);
  EXPECT_EQ(status.checks.at(0).id, "CORRUPT_BLOCKS");
  EXPECT_TRUE(is(mon->forget_osd(osd.osd, device_id(1)).error(), MonError::in_use));
}

// Whoever may reach the socket may destroy every image.
TEST(MonRpc, the_socket_and_its_folder_are_for_the_owner_alone) {
  MonOnSocket server;
  const std::string path = server.address().substr(5);
  struct stat socket{};
  struct stat folder{};
  ASSERT_EQ(::stat(path.c_str(), &socket), 0);
  ASSERT_EQ(::stat(path.substr(0, path.rfind('/')).c_str(), &folder), 0);
  EXPECT_EQ(socket.st_mode & 0777, 0600u);
  EXPECT_EQ(folder.st_mode & 0777, 0700u);
}

// gRPC would unlink the socket of another mon and take its place.
TEST(MonRpc, a_second_mon_does_not_take_the_socket) {
  MonOnSocket server;
  MemoryMapStore other;
  const auto mon = Mon::start(other, [] { return kWallTimeNs; }, {}).value();
  EXPECT_TRUE(is(MonServer::start(*mon, {server.address()}).error(), MonError::in_use));
  EXPECT_TRUE(server.client()->status().has_value());
}

// Callers must tell "refused" from "try again", and must not hang.
TEST(MonRpc, a_mon_that_is_away_is_unreachable_and_found_again) {
  MonOnSocket server;
  const auto mon = server.client();
  ASSERT_TRUE(mon->status().has_value());
  server.stop();
  const Error away = mon->status().error();
  EXPECT_TRUE(away.retryable()) << away.message();
  EXPECT_NE(away.message().find(server.address()), std::string::npos) << away.message();
  server.start();
  await([&] { return mon->status().has_value(); });
}

TEST(MonRpc, listens_on_tcp_with_a_port_of_the_systems_choice) {
  MemoryMapStore store;
  const auto mon = Mon::start(store, [] { return kWallTimeNs; }, {}).value();
  const auto server = MonServer::start(*mon, {"tcp:127.0.0.1:0"}).value();
  ASSERT_NE(server->addresses().at(0), "tcp:127.0.0.1:0");
  const auto client = MonClient::create({.mon = server->addresses().at(0)}).value();
  EXPECT_TRUE(client->status().has_value());
}

TEST(MonRpc, addresses_that_cannot_be_are_refused) {
  for (const char* address : {"", "unix:", "unix:relative", "tcp:", "tcp:1.2.3.4", "tcp::80",
                              "tcp:host:99999", "http://mon"}) {
    EXPECT_TRUE(is(MonClient::create({.mon = address}).error(), MonError::bad_request)) << address;
  }
}

}  // namespace
}  // namespace sarsen
