#include <gmock/gmock.h>
#include <sys/stat.h>

#include "dataplane/blockd/control/control_client.h"
#include "dataplane/blockd/control/control_server.h"
#include "tests/unit/blockd/blockd_fakes.h"

namespace sarsen::blockd {
namespace {

using ::testing::HasSubstr;

std::string socket_name() {
  return "/tmp/control_test." + std::to_string(::getpid()) + ".sock";
}

// What the CLI does, on a thread that may block.
bool ask(const std::string& socket) {
  ControlClient client(socket);
  const auto missing = client.map({.image = "rbd/none", .nbd = true});
  EXPECT_TRUE(!missing && is(missing.error(), ControlError::not_found));
  const auto malformed = client.map({.image = "rbd", .nbd = true});
  EXPECT_TRUE(!malformed && is(malformed.error(), ControlError::refused));
  EXPECT_THAT(std::string(malformed.error().detail()), HasSubstr("expected POOL/IMAGE"));

  const auto mapped = client.map({.image = "rbd/a", .nbd = true, .sector_bytes = 512});
  EXPECT_TRUE(mapped) << mapped.error().message();
  const auto devices = client.list();
  EXPECT_TRUE(devices && devices->size() == 1);
  const DeviceReport& device = devices->front();
  EXPECT_EQ(device.image, "rbd/a");
  EXPECT_EQ(device.state, "serving");
  EXPECT_TRUE(device.nbd && !device.read_only);
  EXPECT_EQ(device.sector_bytes, 512u);
  EXPECT_EQ(device.size_bytes, kMiB);
  EXPECT_EQ(device.holder, kThisNode.value);
  EXPECT_EQ(device.attach_epoch, 1u);

  EXPECT_TRUE(client.fail("rbd/a"));
  EXPECT_EQ(client.list()->front().state, "failed");
  EXPECT_TRUE(client.unmap("rbd/a", false));
  const auto gone = client.unmap("rbd/a", false);
  EXPECT_TRUE(!gone && is(gone.error(), ControlError::not_found));
  return true;
}

bool ask_nobody(const std::string& socket) {
  ControlClient client(socket);
  const auto devices = client.list();
  EXPECT_TRUE(!devices && is(devices.error(), ControlError::unreachable));
  EXPECT_THAT(devices.error().message(), HasSubstr("no sarsen-blockd answers (unix:"));
  return true;
}

Task<void> asks_over_the_socket(Node* node) {
  (void)node->mon.create_image({"rbd", "a"}, kMiB);
  Images images(node->images_context());
  ShardCalls calls(node->context.reactor);
  const std::string socket = socket_name();
  auto server = ControlServer::start(socket, images, calls);
  EXPECT_TRUE(server) << server.error().message();
  struct stat status{};
  EXPECT_EQ(::stat(socket.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777u, 0600u) << "whoever can connect owns every image";
  BlockingPool& blocking = node->context.env.blocking;
  EXPECT_TRUE(co_await blocking.run([socket] { return ask(socket); }));
  calls.refuse();
  co_await images.stop();
  co_await calls.join();
  co_await blocking.run([&server] {
    (*server)->stop();
    return true;
  });
  EXPECT_TRUE(co_await blocking.run([socket] { return ask_nobody(socket); }));
}
TEST_F(BlockdTest, is_asked_over_its_socket) {
  run(asks_over_the_socket);
}

Task<Result<int>> seven() {
  co_return 7;
}

// A call that comes as the shard ends is answered, not left.
Task<void> refuses(Node* node) {
  ShardCalls calls(node->context.reactor);
  BlockingPool& blocking = node->context.env.blocking;
  const auto answered = co_await blocking.run([&calls] { return calls.run<int>(seven); });
  EXPECT_TRUE(answered && *answered == 7);
  calls.refuse();
  const auto refused = co_await blocking.run([&calls] { return calls.run<int>(seven); });
  EXPECT_TRUE(!refused && is(refused.error(), RuntimeError::stopped));
  co_await calls.join();
}
TEST_F(BlockdTest, refuses_calls_when_it_ends) {
  run(refuses);
}

}  // namespace
}  // namespace sarsen::blockd
