#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dataplane/keeper/client.h"
#include "dataplane/keeper/server.h"

namespace sarsen::keeper {
namespace {

// A folder that goes with the test, and a keeper that can be started again on the same socket.
class Keeper : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/keeper_test.XXXXXX";
    folder_ = ::mkdtemp(name);
    socket_ = folder_ + "/keeper.sock";
    start();
  }
  void TearDown() override {
    stop();
    std::filesystem::remove_all(folder_);
  }
  void start() {
    server_ = std::make_unique<Server>();
    ASSERT_EQ(server_->listen(socket_), "");
    thread_ = std::thread([this] { server_->run(); });
  }
  void stop() {
    server_->stop();
    thread_.join();
    server_.reset();
  }
  Client connect() {
    auto client = Client::connect(socket_);
    EXPECT_TRUE(client) << client.error().message();
    return std::move(*client);
  }

  std::string folder_;
  std::string socket_;
  std::unique_ptr<Server> server_;
  std::thread thread_;
};

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

int open_descriptors() {
  int count = 0;
  for ([[maybe_unused]] const auto& item : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

bool is(const Error& error, KeeperError code) {
  return error.code() == static_cast<int>(code);
}

// The keeper is not updated with its clients: these bytes must never change.
TEST(KeeperProtocol, has_the_bytes_of_its_document) {
  Message message;
  message.verb = static_cast<std::uint16_t>(Verb::put);
  message.value = 0x1122334455667788;
  message.state_bytes = 3;
  message.descriptor_count = 2;
  std::strcpy(message.kind, "fuse");
  std::strcpy(message.name, "rbd/a");
  std::array<unsigned char, sizeof(Message)> expected{
      'S', 'K', 'E', 'P', 1, 0, 2, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 3,   0,
      0,   0,   2,   0,   0, 0, 0, 0, 0,    0,    0,    0,    0,    0,    'f',  'u',  's', 'e'};
  std::memcpy(expected.data() + 64, "rbd/a", 5);
  EXPECT_EQ(std::memcmp(&message, expected.data(), sizeof(message)), 0);
}

// The whole point: a server that starts anew finds the very same open files.
TEST_F(Keeper, gives_back_what_a_dead_client_put) {
  int pipe[2];
  ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  {
    Client first = connect();
    ASSERT_TRUE(first.put("rbd/a", "fuse", 42, bytes_of("state"), pipe));
    ::close(pipe[0]);
    ::close(pipe[1]);
  }
  Client second = connect();
  auto held = second.get("rbd/a");
  ASSERT_TRUE(held) << held.error().message();
  EXPECT_EQ(held->kind, "fuse");
  EXPECT_EQ(held->value, 42u);
  EXPECT_FALSE(held->failed);
  EXPECT_EQ(held->state.size(), 5u);
  ASSERT_EQ(held->descriptors.size(), 2u);
  ASSERT_EQ(::write(held->descriptors[1].get(), "x", 1), 1);
  char byte = 0;
  ASSERT_EQ(::read(held->descriptors[0].get(), &byte, 1), 1);
  EXPECT_EQ(byte, 'x');
}

// A descriptor that leaks keeps a dead device alive for ever.
TEST_F(Keeper, closes_descriptors_that_are_dropped_replaced_or_refused) {
  Client client = connect();
  ASSERT_TRUE(client.hello());
  int pipe[2];
  ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  const int before = open_descriptors();
  ASSERT_TRUE(client.put("a", "fuse", 0, {}, pipe));
  ASSERT_TRUE(client.put("a", "fuse", 0, {}, pipe));
  EXPECT_EQ(open_descriptors(), before + 2);
  EXPECT_FALSE(client.put("", "fuse", 0, {}, pipe));
  ASSERT_TRUE(client.drop("a"));
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_TRUE(is(client.drop("a").error(), KeeperError::not_found));
  ::close(pipe[0]);
  ::close(pipe[1]);
}

// The largest packet in both directions, and one more byte or descriptor.
TEST_F(Keeper, holds_state_and_descriptors_up_to_their_bounds) {
  Client client = connect();
  std::vector<std::byte> state(kStateBytesMax, std::byte{7});
  std::vector<int> descriptors(kDescriptorsMax, STDERR_FILENO);
  ASSERT_TRUE(client.put("a", "vhost", 0, state, descriptors));
  auto held = client.get("a");
  ASSERT_TRUE(held);
  EXPECT_EQ(held->state, state);
  EXPECT_EQ(held->descriptors.size(), kDescriptorsMax);
  state.emplace_back();
  EXPECT_TRUE(is(client.put("a", "vhost", 0, state, {}).error(), KeeperError::too_large));
  EXPECT_EQ(client.get("a")->state.size(), kStateBytesMax);
}

TEST_F(Keeper, lists_all_names_in_order_without_limit_of_a_packet) {
  Client client = connect();
  for (std::uint32_t i = kEntriesMax; i-- > 0;) {
    char name[200];
    std::snprintf(name, sizeof(name), "image-with-a-long-name-%0150u", i);
    ASSERT_TRUE(client.put(name, "fuse", i, {}, {}));
  }
  EXPECT_TRUE(is(client.put("one more", "fuse", 0, {}, {}).error(), KeeperError::full));
  const auto all = client.list();
  ASSERT_TRUE(all);
  ASSERT_EQ(all->size(), kEntriesMax);
  for (std::uint32_t i = 0; i < kEntriesMax; ++i) EXPECT_EQ((*all)[i].value, i);
}

// Rule R7: a session number that was used before lets an old write land after a new one.
TEST_F(Keeper, never_repeats_a_session_number_even_when_restarted) {
  const std::uint64_t first = *connect().session(0);
  const std::uint64_t second = *connect().session(0);
  EXPECT_GT(second, first);
  EXPECT_EQ(*connect().session(second + (1ull << 60)), second + (1ull << 60) + 1);
  const std::uint64_t incarnation = *connect().hello();
  stop();
  start();
  Client client = connect();
  EXPECT_NE(*client.hello(), incarnation);
  EXPECT_GT(*client.session(0), second);
}

// What a newer or a broken client sends must be answered or closed, and end nothing.
TEST_F(Keeper, answers_malformed_packets_and_goes_on) {
  const auto status_of = [this](const void* bytes, std::size_t size) {
    Client client = connect();
    EXPECT_EQ(::send(client.descriptor(), bytes, size, 0), static_cast<ssize_t>(size));
    Message reply;
    EXPECT_EQ(::recv(client.descriptor(), &reply, sizeof(reply), 0),
              static_cast<ssize_t>(sizeof(reply)));
    return static_cast<Status>(reply.status);
  };
  Message message;
  message.verb = static_cast<std::uint16_t>(Verb::hello);
  EXPECT_EQ(status_of(&message, sizeof(message)), Status::ok);
  EXPECT_EQ(status_of(&message, 7), Status::bad_request);
  std::vector<std::byte> oversized(kPacketBytesMax + 1);
  std::memcpy(oversized.data(), &message, sizeof(message));
  EXPECT_EQ(status_of(oversized.data(), oversized.size()), Status::bad_request);

  Message wrong = message;
  wrong.version = 2;
  EXPECT_EQ(status_of(&wrong, sizeof(wrong)), Status::bad_version);
  wrong = message;
  wrong.magic ^= 1;
  EXPECT_EQ(status_of(&wrong, sizeof(wrong)), Status::bad_request);
  wrong = message;
  wrong.verb = 999;
  EXPECT_EQ(status_of(&wrong, sizeof(wrong)), Status::bad_request);
  wrong = message;
  wrong.descriptor_count = 1;
  EXPECT_EQ(status_of(&wrong, sizeof(wrong)), Status::bad_request);
  wrong = message;
  wrong.state_bytes = 1;
  EXPECT_EQ(status_of(&wrong, sizeof(wrong)), Status::bad_request);
  wrong = message;
  std::memset(wrong.name, 'x', sizeof(wrong.name));
  EXPECT_EQ(status_of(&wrong, sizeof(wrong)), Status::bad_request);
  EXPECT_TRUE(connect().hello());
}

// A client that never reads must not make the keeper wait: others need it now.
TEST_F(Keeper, closes_a_client_that_does_not_read_its_replies) {
  Client deaf = connect();
  Message message;
  message.verb = static_cast<std::uint16_t>(Verb::hello);
  ssize_t sent = 0;
  for (int i = 0; i < 100'000 && sent >= 0; ++i) {
    sent = ::send(deaf.descriptor(), &message, sizeof(message), MSG_NOSIGNAL);
  }
  EXPECT_EQ(sent, -1);
  EXPECT_TRUE(connect().hello());
}

TEST_F(Keeper, refuses_a_second_keeper_on_its_socket) {
  Server second;
  EXPECT_NE(second.listen(socket_), "");
  EXPECT_TRUE(connect().hello());
}

// Descriptors of block devices are the data of everyone on the node.
TEST_F(Keeper, hears_only_root_and_its_own_user) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  ::chmod(folder_.c_str(), 0755);
  ::chmod(socket_.c_str(), 0666);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setresuid(65534, 65534, 65534) != 0) ::_exit(3);
    auto client = Client::connect(socket_);
    ::_exit(!client ? 2 : client->hello() ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(Keeper, cannot_fail_what_it_does_not_know_but_lets_it_go) {
  Client client = connect();
  const int descriptors[] = {STDERR_FILENO};
  ASSERT_TRUE(client.put("a", "ublk", 0, {}, descriptors));
  EXPECT_TRUE(is(client.fail("a").error(), KeeperError::unsupported));
  const auto held = client.get("a");
  ASSERT_TRUE(held);
  EXPECT_TRUE(held->failed);
  EXPECT_TRUE(held->descriptors.empty());
  EXPECT_TRUE(is(client.fail("b").error(), KeeperError::not_found));
}

struct FuseMount {
  Descriptor connection;
  Descriptor mount;
  std::uint64_t number = 0;
};

// A FUSE mount on no path, whose server (this test) never answers.
FuseMount mount_without_server() {
  FuseMount fuse;
  fuse.connection.reset(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
  const Descriptor context(::fsopen("fuse", FSOPEN_CLOEXEC));
  const std::string number = std::to_string(fuse.connection.get());
  const auto set = [&](const char* key, const char* value) {
    return ::fsconfig(context.get(), FSCONFIG_SET_STRING, key, value, 0) == 0;
  };
  EXPECT_TRUE(set("fd", number.c_str()) && set("rootmode", "40000") && set("user_id", "0") &&
              set("group_id", "0"));
  EXPECT_EQ(::fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0), 0);
  fuse.mount.reset(::fsmount(context.get(), FSMOUNT_CLOEXEC, 0));
  struct statx status{};
  EXPECT_EQ(::statx(fuse.mount.get(), "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &status),
            0);
  fuse.number = status.stx_dev_minor;
  return fuse;
}

// Whoever waits for a dead device cannot be killed: fail() must end the wait, even while some
// process still holds the connection open (this test does).
TEST_F(Keeper, fail_ends_the_wait_on_a_fuse_device_without_server) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  FuseMount fuse = mount_without_server();
  Client client = connect();
  const int descriptors[] = {fuse.connection.get(), fuse.mount.get()};
  ASSERT_TRUE(client.put("a", kKindFuse, fuse.number, {}, descriptors));
  int open_error = 0;
  std::thread waiter([&] {
    const Descriptor file(::openat(fuse.mount.get(), "image", O_RDONLY));
    open_error = file ? 0 : errno;
  });
  // The request has reached the server's queue once the connection is readable.
  std::array<std::byte, 65536> packet{};
  EXPECT_GT(::read(fuse.connection.get(), packet.data(), packet.size()), 0);
  const auto failed = client.fail("a");
  EXPECT_TRUE(failed) << failed.error().message();
  if (!failed) fuse.connection.reset();  // the last one: nothing may stay behind that waits for us
  waiter.join();
  EXPECT_TRUE(open_error == ENOTCONN || open_error == ECONNABORTED || open_error == ECONNREFUSED)
      << std::strerror(open_error);
  EXPECT_TRUE(client.get("a")->failed);
  EXPECT_TRUE(client.fail("a")) << "again, harmless";
}

}  // namespace
}  // namespace sarsen::keeper
