// Simulated streams keep bytes and order, cut them anywhere, and break when a node dies.
#include <gtest/gtest.h>

#include "tests/sim/run_task.h"
#include "tests/sim/sim_network.h"

namespace sarsen::sim {
namespace {

using ConnectionPtr = std::unique_ptr<Connection>;

std::byte byte_at(std::uint64_t position) {
  return static_cast<std::byte>((position * 37 + position / 251) & 0xff);
}

class SimNetworkTest : public testing::TestWithParam<std::uint64_t> {
 protected:
  Simulator simulator{{.seed = GetParam()}};
  SimNode& server = simulator.add_node({});
  SimNode& client = simulator.add_node({});

  void SetUp() override {
    server.start();
    client.start();
  }

  // Runs both sides until both have ended.
  void run_both(Task<void> at_server, Task<void> at_client) {
    int ended = 0;
    const auto counted = [](Task<void> task, int* count) -> Task<void> {
      co_await std::move(task);
      ++*count;
    };
    simulator.run_at(server.place(ShardId(0)),
                     [&] { server.scope().spawn(counted(std::move(at_server), &ended)); });
    simulator.run_at(client.place(ShardId(0)),
                     [&] { client.scope().spawn(counted(std::move(at_client), &ended)); });
    ASSERT_TRUE(simulator.run_until([&ended] { return ended == 2; }, seconds(100)));
  }
};

constexpr std::uint64_t kStreamBytes = 3 * kMiB;  // many windows

Task<void> send_stream(Network& network) {
  ConnectionPtr connection = *co_await network.connect("tcp:10.0.0.1:7000");
  std::vector<std::byte> bytes(kStreamBytes);
  for (std::uint64_t i = 0; i < bytes.size(); ++i) bytes[i] = byte_at(i);
  const std::array<std::span<const std::byte>, 3> pieces{std::span(bytes).first(10),
                                                         std::span(bytes).subspan(10, kMiB),
                                                         std::span(bytes).subspan(10 + kMiB)};
  EXPECT_TRUE(co_await connection->send(pieces));
}

Task<void> receive_stream(Listener& listener, std::uint64_t* received, std::uint64_t* receives) {
  ConnectionPtr connection = *co_await listener.accept();
  std::vector<std::byte> buffer(100'000);
  while (true) {
    const auto length = co_await connection->receive(buffer);
    if (!length || *length == 0) break;
    for (std::size_t i = 0; i < *length; ++i) {
      SARSEN_ASSERT(buffer[i] == byte_at(*received + i), "bytes arrive in order");
    }
    *received += *length;
    ++*receives;
  }
}

// A codec that believes in message boundaries must fail here.
TEST_P(SimNetworkTest, carries_every_byte_in_order_and_in_pieces_of_any_size) {
  auto listener = *server.env().network.listen("tcp:10.0.0.1:7000");
  std::uint64_t received = 0, receives = 0;
  run_both(receive_stream(*listener, &received, &receives), send_stream(client.env().network));
  EXPECT_EQ(received, kStreamBytes);
  EXPECT_GT(receives, kStreamBytes / 100'000);
  listener.reset();
}

Task<std::optional<Error>> connect_error(Network& network, Address address) {
  auto connection = co_await network.connect(address);
  if (connection) co_return std::nullopt;
  co_return std::move(connection).error();
}

TEST_P(SimNetworkTest, refuses_where_nobody_listens_and_an_address_in_use) {
  EXPECT_TRUE(is(**run_task(client, connect_error(client.env().network, "tcp:10.0.0.1:1")),
                 RuntimeError::connection_refused));
  auto listener = *server.env().network.listen("tcp:10.0.0.1:7000");
  EXPECT_TRUE(
      is(server.env().network.listen("tcp:10.0.0.1:7000").error(), RuntimeError::address_in_use));
  EXPECT_TRUE(is(server.env().network.listen("nonsense").error(), RuntimeError::address_invalid));
  listener->close();
  EXPECT_TRUE(server.env().network.listen("tcp:10.0.0.1:7000"));
  // A unix path belongs to one node.
  auto here = *server.env().network.listen("unix:/run/x");
  auto there = *client.env().network.listen("unix:/run/x");
  EXPECT_NE((*server.env().network.listen("tcp:10.0.0.1:0"))->address(), "tcp:10.0.0.1:0");
}

Task<void> accept_and_wait(Listener& listener) {
  ConnectionPtr connection = *co_await listener.accept();
  std::array<std::byte, 16> buffer;
  (void)co_await connection->receive(buffer);
}

Task<void> expect_break(Network& network, bool* broke) {
  ConnectionPtr connection = *co_await network.connect("tcp:10.0.0.1:7000");
  std::array<std::byte, 16> buffer;
  const auto length = co_await connection->receive(buffer);
  *broke = !length || *length == 0;
  const std::array<std::span<const std::byte>, 1> pieces{std::span<const std::byte>(buffer)};
  EXPECT_FALSE(co_await connection->send(pieces));
}

// A client of a dead primary must hear of it and try elsewhere.
TEST_P(SimNetworkTest, breaks_connections_of_a_node_that_crashes_and_frees_its_addresses) {
  for (int round = 0; round < 3; ++round) {
    auto listener = *server.env().network.listen("tcp:10.0.0.1:7000");
    // Lives in the program in real code; here it must die with the node.
    server.scope().spawn([](std::unique_ptr<Listener> owned) -> Task<void> {
      co_await accept_and_wait(*owned);
    }(std::move(listener)));
    bool broke = false;
    client.scope().spawn(expect_break(client.env().network, &broke));
    simulator.run_for(milliseconds(round));
    server.crash(CrashKind::process_kill);
    if (round > 0) {
      EXPECT_TRUE(simulator.run_until([&broke] { return broke; }, seconds(1)));
    } else {
      client.crash(CrashKind::process_kill);  // while it connects
      client.start();
    }
    server.start();
  }
}

TEST_P(SimNetworkTest, a_closed_listener_stops_its_accept) {
  auto listener = *server.env().network.listen("tcp:10.0.0.1:7000");
  std::optional<Error> error;
  server.scope().spawn([](Listener& listening, std::optional<Error>* out) -> Task<void> {
    auto accepted = co_await listening.accept();
    if (!accepted) *out = accepted.error();
  }(*listener, &error));
  simulator.run_for(milliseconds(1));
  listener.reset();
  simulator.run_until([&error] { return error.has_value(); }, seconds(1));
  ASSERT_TRUE(error);
  EXPECT_TRUE(is(*error, RuntimeError::stopped));
}

INSTANTIATE_TEST_SUITE_P(Seeds, SimNetworkTest, testing::Range<std::uint64_t>(1, 6));

}  // namespace
}  // namespace sarsen::sim
