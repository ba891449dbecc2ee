#include "dataplane/blockd/images.h"

#include <array>

#include <gmock/gmock.h>

#include "tests/unit/blockd/blockd_fakes.h"

namespace sarsen::blockd {
namespace {

using ::testing::HasSubstr;

MapOptions exported(std::string name) {
  MapOptions options;
  options.image = std::move(name);
  options.frontend = Frontend::nbd;
  return options;
}

Task<Result<void>> read_block(BlockTarget* target) {
  std::array<std::byte, 4096> block{};
  co_return co_await target->read(0, block);
}

Task<void> keep_outcome(Task<Result<void>> task, std::optional<Result<void>>* outcome) {
  outcome->emplace(co_await std::move(task));
}

// Asking twice must not make two devices: whoever asks may have lost the first answer.
Task<void> maps_once(Node* node) {
  (void)node->mon.create_image({"rbd", "a"}, kMiB);
  Images images(node->images_context());
  const auto first = co_await images.map(exported("rbd/a"));
  EXPECT_TRUE(first) << first.error().message();
  if (!first) co_return;
  EXPECT_EQ(first->device, "nbd+unix:///rbd/a?socket=/run/nbd.sock");
  EXPECT_EQ(first->phase, ImagePhase::serving);
  const auto second = co_await images.map(exported("rbd/a"));
  EXPECT_TRUE(second && second->state.attach_epoch == first->state.attach_epoch);
  EXPECT_EQ(node->sessions.opened.size(), 1u);

  MapOptions other = exported("rbd/a");
  other.sector_bytes = 512;
  const auto refused = co_await images.map(other);
  EXPECT_TRUE(!refused && is(refused.error(), BlockdError::mapped_otherwise));
  EXPECT_THAT(std::string(refused.error().message()), HasSubstr("sectors of 4096 bytes"));

  EXPECT_TRUE(co_await images.unmap("rbd/a", false));
  EXPECT_EQ(node->mon.attachments("a"), 0u);
  const auto again = co_await images.unmap("rbd/a", false);
  EXPECT_TRUE(!again && is(again.error(), BlockdError::not_mapped));
  co_await images.stop();
}
TEST_F(BlockdTest, gives_an_image_that_is_mapped_already_as_it_is) {
  run(maps_once);
}

// What cannot be mapped must leave nothing behind, or nobody else can have the image.
Task<void> undoes_what_failed(Node* node) {
  (void)node->mon.create_image({"rbd", "a"}, kMiB);
  Images images(node->images_context());
  const auto missing = co_await images.map(exported("rbd/none"));
  EXPECT_TRUE(!missing && is(missing.error(), MonError::not_found));
  const auto malformed = co_await images.map(exported("rbd"));
  EXPECT_TRUE(!malformed && is(malformed.error(), RuntimeError::bad_argument));
  node->sessions.refuse = make_error(ClientError::fenced, "a");
  const auto fenced = co_await images.map(exported("rbd/a"));
  EXPECT_TRUE(!fenced && is(fenced.error(), ClientError::fenced));
  EXPECT_EQ(node->mon.attachments("a"), 0u);
  EXPECT_TRUE(images.report().empty());
  // The loop helper of this test makes no device; the attachment must go with it.
  node->sessions.refuse.reset();
  MapOptions loop = exported("rbd/a");
  loop.frontend = Frontend::loop;
  EXPECT_FALSE(co_await images.map(loop));
  EXPECT_EQ(node->mon.attachments("a"), 0u);
  EXPECT_TRUE(images.report().empty());
  co_await images.stop();
}
TEST_F(BlockdTest, leaves_nothing_behind_when_it_cannot_map) {
  run(undoes_what_failed);
}

// A killed or upgraded blockd goes on under the same attachment, so nobody is asked and nothing is
// fenced; only the session is newer (rule R7).
Task<void> maps_and_leaves(Node* node) {
  (void)node->mon.create_image({"rbd", "a"}, kMiB);
  Images images(node->images_context());
  EXPECT_TRUE(co_await images.map(exported("rbd/a")));
  co_await images.stop();
  EXPECT_EQ(node->mon.attachments("a"), 1u);
}
Task<void> takes_over(Node* node) {
  node->mon.set_away(true);
  Images images(node->images_context());
  const auto taken = co_await images.recover();
  EXPECT_TRUE(taken && *taken == 1);
  const auto opened = co_await images.open("rbd/a");
  EXPECT_TRUE(opened) << opened.error().message();
  if (!opened) co_return;
  EXPECT_TRUE(co_await read_block(opened->target.get()));
  EXPECT_EQ(node->sessions.opened.size(), 1u);
  EXPECT_EQ(node->sessions.opened[0].attach_epoch, AttachEpoch(1));
  EXPECT_EQ(node->sessions.opened[0].holder, kThisNode);
  co_await images.stop();
}
Task<void> session_number(Node* node) {
  const auto number = node->keeper.session();
  EXPECT_TRUE(number && *number > 0);
  co_return;
}
TEST_F(BlockdTest, goes_on_with_what_its_predecessor_mapped) {
  run(maps_and_leaves);
  run(session_number);
  run(takes_over);
}

// The mon may be away when an image is unmapped; the attachment must go all the same, later.
Task<void> unmaps_without_mon(Node* node) {
  (void)node->mon.create_image({"rbd", "a"}, kMiB);
  Images images(node->images_context());
  EXPECT_TRUE(co_await images.map(exported("rbd/a")));
  node->mon.set_away(true);
  const auto unmapped = co_await images.unmap("rbd/a", false);
  EXPECT_TRUE(!unmapped && is(unmapped.error(), MonError::unreachable));
  EXPECT_EQ(images.report().at(0).phase, ImagePhase::detaching);
  EXPECT_FALSE(co_await images.open("rbd/a"));
  co_await images.stop();
}
Task<void> finishes_the_unmap(Node* node) {
  node->mon.set_away(false);
  EXPECT_EQ(node->mon.attachments("a"), 1u);
  Images images(node->images_context());
  EXPECT_TRUE(co_await images.recover());
  EXPECT_EQ(images.report().at(0).phase, ImagePhase::detaching);
  EXPECT_TRUE(co_await images.unmap("rbd/a", false));
  EXPECT_EQ(node->mon.attachments("a"), 0u);
  co_await images.stop();
}
TEST_F(BlockdTest, tells_the_mon_of_an_unmapped_image_when_it_is_back) {
  run(unmaps_without_mon);
  run(finishes_the_unmap);
}

// Somebody took the image away from this node: its device must not wait for ever.
Task<void> is_fenced(Node* node) {
  const auto image = node->mon.create_image({"rbd", "a"}, kMiB);
  Images images(node->images_context());
  EXPECT_TRUE(co_await images.map(exported("rbd/a")));
  node->map.set(node->mon.map());
  const auto opened = co_await images.open("rbd/a");
  EXPECT_TRUE(opened && co_await read_block(opened->target.get()));
  node->mon.change([&](ClusterMap& map) { map.images.at(image->id).attachments.clear(); });
  node->map.set(node->mon.map());
  EXPECT_TRUE(
      co_await eventually(node, [&] { return images.report().at(0).phase == ImagePhase::fenced; }));
  const auto read = co_await read_block(opened->target.get());
  EXPECT_TRUE(!read && is(read.error(), ClientError::fenced));
  EXPECT_THAT(images.report().at(0).detail, HasSubstr("revoked"));
  co_await images.stop();
}
TEST_F(BlockdTest, answers_errors_at_once_after_the_attachment_was_revoked) {
  run(is_fenced);
}

// The map that a predecessor kept may be older than the attachment: it must not end a device.
Task<void> believes_the_mon_alone(Node* node) {
  node->map_confirmed = false;
  node->sessions.refuse = make_error(ClientError::fenced, "a");
  Images images(node->images_context());
  EXPECT_TRUE(co_await images.recover());
  node->map.set(ClusterMap{.epoch = MapEpoch(1)});
  EXPECT_TRUE(co_await eventually(node, [&] { return node->sessions.opened.size() >= 2; }));
  EXPECT_EQ(images.report().at(0).phase, ImagePhase::starting);
  node->map_confirmed = true;
  EXPECT_TRUE(
      co_await eventually(node, [&] { return images.report().at(0).phase == ImagePhase::fenced; }));
  co_await images.stop();
}
TEST_F(BlockdTest, is_fenced_by_the_mon_and_not_by_an_old_map) {
  run(maps_and_leaves);
  run(believes_the_mon_alone);
}

// I-BLOCKD-3: an image whose cluster hangs is nobody else's matter, and does not keep blockd from
// being replaced.
Task<void> one_hangs(Node* node) {
  const auto hanging = node->mon.create_image({"rbd", "hangs"}, kMiB);
  (void)node->mon.create_image({"rbd", "works"}, kMiB);
  Images images(node->images_context());
  EXPECT_TRUE(co_await images.map(exported("rbd/hangs")));
  node->sessions.image(hanging->id).data.hold();
  Scope readers(node->context.env.executor);
  std::optional<Result<void>> stuck;
  const auto client = co_await images.open("rbd/hangs");
  if (!client) co_return;
  readers.spawn(keep_outcome(read_block(client->target.get()), &stuck));
  EXPECT_TRUE(co_await images.map(exported("rbd/works")));
  {
    const auto opened = co_await images.open("rbd/works");
    EXPECT_TRUE(opened && co_await read_block(opened->target.get()));
  }
  EXPECT_TRUE(co_await images.unmap("rbd/works", false));
  EXPECT_FALSE(stuck);
  co_await images.stop();
  co_await readers.join();
  EXPECT_TRUE(stuck && !*stuck);
  EXPECT_EQ(stuck->error().error_class(), ErrorClass::cancelled) << "for the next server";
  const auto late = co_await read_block(client->target.get());
  EXPECT_TRUE(!late && late.error().error_class() == ErrorClass::cancelled);
}
TEST_F(BlockdTest, is_not_held_up_by_an_image_that_hangs) {
  run(one_hangs);
}

// fail() is for what nobody will ever serve again: waiting ends, and unmapping works.
Task<void> fails(Node* node) {
  const auto image = node->mon.create_image({"rbd", "a"}, kMiB);
  Images images(node->images_context());
  EXPECT_TRUE(co_await images.map(exported("rbd/a")));
  Scope readers(node->context.env.executor);
  std::optional<Result<void>> stuck;
  const auto opened = co_await images.open("rbd/a");
  if (!opened) co_return;
  node->sessions.image(image->id).data.hold();
  readers.spawn(keep_outcome(read_block(opened->target.get()), &stuck));
  const auto in_use = co_await images.unmap("rbd/a", false);
  EXPECT_TRUE(!in_use && is(in_use.error(), BlockdError::in_use));
  EXPECT_TRUE(co_await images.fail("rbd/a"));
  co_await readers.join();
  EXPECT_TRUE(stuck && !*stuck);
  EXPECT_EQ(images.report().at(0).phase, ImagePhase::failed);
  const auto read = co_await read_block(opened->target.get());
  EXPECT_TRUE(!read && is(read.error(), BlockdError::failed));
  EXPECT_TRUE(co_await images.unmap("rbd/a", true));
  EXPECT_EQ(node->mon.attachments("a"), 0u);
  EXPECT_TRUE(co_await images.map(exported("rbd/a"))) << "a new mapping is whole";
  co_await images.stop();
}
TEST_F(BlockdTest, ends_requests_in_flight_when_an_image_is_failed) {
  run(fails);
}

}  // namespace
}  // namespace sarsen::blockd
