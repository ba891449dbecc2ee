#include <cstring>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dataplane/blockd/buffer_share.h"
#include "dataplane/blockd/image_state.h"
#include "dataplane/blockd/image_target.h"
#include "dataplane/blockd/node_identity.h"
#include "tests/support/memory_env.h"
#include "tests/support/memory_target.h"

namespace sarsen::blockd {
namespace {

using ::testing::HasSubstr;

ImageState some_state() {
  ImageState state;
  state.name = "rbd/a";
  state.image = ImageId(7);
  state.holder = HolderId(0x1122334455667788);
  state.attach_epoch = AttachEpoch(9);
  state.mode = AttachMode::read_only;
  state.frontend = Frontend::nbd;
  state.sector_bytes = 512;
  state.size_bytes = 5 * kGiB;
  return state;
}

// Any later blockd reads what any earlier one wrote, for as long as an image stays mapped.
TEST(ImageState, is_read_by_every_later_version) {
  const auto bytes = encode(some_state());
  EXPECT_EQ(decode_image_state(bytes), some_state());
  constexpr unsigned char kStart[] = {'S', 'K', 'I', 'M', 1, 0, 0, 0, 7};
  EXPECT_EQ(std::memcmp(bytes.data(), kStart, sizeof(kStart)), 0);

  auto later = bytes;
  later[4] = std::byte{2};
  later.resize(later.size() + 100);
  EXPECT_EQ(decode_image_state(later), some_state()) << "a later version only appends";
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(decode_image_state(std::span(bytes).first(length))) << length;
  }
}

class Folder {
 public:
  Folder() {
    char name[] = "/tmp/node_identity.XXXXXX";
    path = ::mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path;
};

// An identity that changed would lose the node's attachments.
TEST(NodeIdentity, is_made_once_and_kept) {
  const Folder folder;
  const auto made = load_or_make_node_id(folder.path + "/state");
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_NE(made->value, 0u);
  EXPECT_EQ(load_or_make_node_id(folder.path + "/state"), *made);
  const auto other = load_or_make_node_id(folder.path + "/other");
  EXPECT_TRUE(other && *other != *made);
}

TEST(NodeIdentity, refuses_what_it_did_not_write) {
  const Folder folder;
  for (const char* text : {"", "12", "00000000000000zz\n", "0000000000000000\n",
                           "0123456789abcdef0\n", "0123456789abcdef"}) {
    std::ofstream(folder.path + "/node-id") << text;
    const auto id = load_or_make_node_id(folder.path);
    ASSERT_FALSE(id) << text;
    EXPECT_THAT(id.error().message(), HasSubstr("16 hex digits"));
  }
}

Task<void> keep(Task<Result<void>> task, std::optional<Result<void>>* outcome) {
  outcome->emplace(co_await std::move(task));
}

// What the kernel sent before the session is there must neither fail nor be lost.
TEST(ImageTarget, waits_for_its_session) {
  test::MemoryEnv env;
  test::MemoryTarget data(env.executor, kMiB);
  ImageTarget target(env.executor, 4096, false);
  Scope scope(env.executor);
  std::optional<Result<void>> outcome;
  scope.spawn(keep(target.flush(), &outcome));
  env.run_until_idle();
  EXPECT_FALSE(outcome);
  EXPECT_EQ(target.size_bytes(), 4096u);
  target.serve(data);
  env.run_until_idle();
  EXPECT_TRUE(outcome && *outcome);
  EXPECT_EQ(target.size_bytes(), kMiB);

  target.end(make_error(RuntimeError::device_gone));
  const auto after = env.run(target.flush());
  EXPECT_TRUE(!after && is(after.error(), RuntimeError::device_gone));
  EXPECT_EQ(target.size_bytes(), kMiB) << "the device's size stays";
}

TEST(ImageTarget, leaves_what_waits_to_the_next_server) {
  test::MemoryEnv env;
  ImageTarget target(env.executor, 4096, false);
  Scope scope(env.executor);
  std::optional<Result<void>> outcome;
  scope.spawn(keep(target.flush(), &outcome));
  target.leave();
  env.run_until_idle();
  ASSERT_TRUE(outcome && !*outcome);
  EXPECT_EQ(outcome->error().error_class(), ErrorClass::cancelled);
}

// I-BLOCKD-3: memory is the one thing that images have in common.
TEST(BufferShare, leaves_the_others_theirs) {
  test::MemoryEnv env;
  BufferShares shares(env.buffers, 48 * kMiB);
  BufferShare first(shares);
  BufferShare second(shares);
  std::vector<Buffer> held;
  while (auto buffer = first.allocate(kMiB)) held.push_back(std::move(*buffer));
  EXPECT_EQ(first.bytes_used(), 16 * kMiB) << "a third: its own, the other's, the next one's";
  EXPECT_TRUE(second.allocate(8 * kMiB));
  held.clear();
  EXPECT_EQ(first.bytes_used(), 0u);
  EXPECT_TRUE(first.allocate(1));
}

}  // namespace
}  // namespace sarsen::blockd
