#include "dataplane/blockd/fuse/keeper_link.h"

#include <atomic>
#include <filesystem>

#include <gtest/gtest.h>
#include <unistd.h>

#include "dataplane/blockd/fuse/server_process.h"
#include "dataplane/keeper/server.h"

namespace sarsen::fuse {
namespace {

class KeeperLinkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/keeper_link.XXXXXX";
    folder_ = ::mkdtemp(name);
    socket_ = folder_ + "/keeper.sock";
  }
  void TearDown() override {
    stop_keeper();
    std::filesystem::remove_all(folder_);
  }
  void start_keeper() {
    keeper_ = std::make_unique<keeper::Server>();
    ASSERT_EQ(keeper_->listen(socket_), "");
    thread_ = std::thread([this] { keeper_->run(); });
  }
  void stop_keeper() {
    if (!keeper_) return;
    keeper_->stop();
    thread_.join();
    keeper_.reset();
  }

  std::string folder_;
  std::string socket_;
  std::unique_ptr<keeper::Server> keeper_;
  std::thread thread_;
};

// The keeper may be restarted too: what it held must come back from here.
TEST_F(KeeperLinkTest, fills_every_new_keeper) {
  start_keeper();
  auto link = KeeperLink::start(socket_);
  ASSERT_TRUE(link) << link.error().message();
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const std::byte state[] = {std::byte{9}};
  ASSERT_TRUE((*link)->put("a", "fuse", 5, state, pipe));
  ASSERT_TRUE((*link)->put("b", "fuse", 6, {}, {}));
  ASSERT_TRUE((*link)->drop("b"));
  const std::uint64_t session = *(*link)->session();
  ::close(pipe[0]);
  ::close(pipe[1]);

  stop_keeper();
  start_keeper();
  ASSERT_GT(*(*link)->session(), session) << "waits for the new keeper";
  EXPECT_EQ((*link)->refills(), 2u);
  auto client = keeper::Client::connect(socket_);
  ASSERT_TRUE(client);
  auto held = client->get("a");
  ASSERT_TRUE(held) << held.error().message();
  EXPECT_EQ(held->value, 5u);
  EXPECT_EQ(held->state.size(), 1u);
  EXPECT_EQ(held->descriptors.size(), 2u);
  EXPECT_FALSE(client->get("b"));
}

// The next server takes over what the keeper has, and is from then on its second holder.
TEST_F(KeeperLinkTest, holds_what_it_recovered) {
  start_keeper();
  const int descriptors[] = {STDERR_FILENO};
  auto client = keeper::Client::connect(socket_);
  ASSERT_TRUE(client && client->put("a", "fuse", 1, {}, descriptors));
  ASSERT_TRUE(client->put("dead", "test", 1, {}, descriptors));
  ASSERT_FALSE(client->fail("dead")) << "of an unknown kind it is only marked";

  auto link = KeeperLink::start(socket_);
  ASSERT_TRUE(link);
  const auto recovered = (*link)->recover();
  ASSERT_TRUE(recovered);
  ASSERT_EQ(recovered->size(), 2u);
  EXPECT_EQ((*recovered)[0].descriptors.size(), 1u);
  EXPECT_TRUE((*recovered)[1].failed);
  stop_keeper();
  start_keeper();
  ASSERT_TRUE((*link)->session());
  client = keeper::Client::connect(socket_);
  EXPECT_EQ(client->get("a")->descriptors.size(), 1u);
  EXPECT_FALSE(client->get("dead")) << "a failed device must not come back";
}

TEST_F(KeeperLinkTest, waits_at_start_for_a_keeper_that_comes_later) {
  std::atomic<bool> started = false;
  std::thread late([&] {
    start_keeper();
    started = true;
  });
  const auto link = KeeperLink::start(socket_);
  late.join();
  EXPECT_TRUE(link);
  EXPECT_TRUE(started);
}

// Two servers on one connection would each answer half of the requests.
TEST_F(KeeperLinkTest, the_server_lock_has_one_holder_at_a_time) {
  const std::string path = folder_ + "/lock";
  {
    const auto first = ServerLock::acquire(path, 0);
    ASSERT_TRUE(first);
    const auto second = ServerLock::acquire(path, 0);
    ASSERT_FALSE(second);
    EXPECT_TRUE(second.error().retryable());
  }
  EXPECT_TRUE(ServerLock::acquire(path, 0));
}

}  // namespace
}  // namespace sarsen::fuse
