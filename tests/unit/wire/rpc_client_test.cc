#include "dataplane/wire/rpc_client.h"

#include <array>

#include <gtest/gtest.h>

#include "dataplane/runtime/error.h"
#include "dataplane/wire/error.h"
#include "tests/support/memory_env.h"

namespace sarsen::wire {
namespace {

using Bytes = std::vector<std::byte>;

Bytes pattern(std::size_t count, std::size_t seed) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(1 + (i + seed) % 251);
  return bytes;
}

// A client with one read under way, and a server that says what a test wants.
class RpcClientTest : public testing::Test {
 protected:
  static constexpr std::uint32_t kBytes = 8192;

  RpcClientTest() {
    auto listener = env.network.listen("memory");
    Scope scope(env.executor);
    scope.spawn(accept(listener->get(), &peer));
    scope.spawn(connect(&env.env, &client));
    env.run_until_idle();
    HelloReply reply;
    reply.version = 1;
    reply.operations_max = 4;
    reply.data_bytes_max = kDataBytesMax;
    send(frame(MessageType::hello, 0, encode(reply)));
    SARSEN_ASSERT(client, "the client is greeted");
    CallOptions options;
    options.deadline = Deadline::after(env.clock, seconds(2));
    calls.spawn(read(client.get(), &into, options, &outcome));
    env.run_until_idle();
  }
  ~RpcClientTest() override {
    peer->close();
    env.run(client->stop());
  }

  static Task<void> accept(Listener* listener, std::unique_ptr<Connection>* connection) {
    *connection = *co_await listener->accept();
  }
  static Task<void> connect(const Env* env, std::unique_ptr<RpcClient>* client) {
    auto connected = co_await RpcClient::connect(env, "memory", Hello{}, Deadline());
    if (connected) *client = std::move(*connected);
  }
  static Task<void> read(RpcClient* client, Bytes* into, CallOptions options,
                         std::optional<Result<void>>* outcome) {
    outcome->emplace(co_await client->read({{}, {0, kBytes}, {}, {}}, *into, options));
  }
  static Bytes frame(MessageType type, std::uint64_t request_id, const Bytes& body,
                     const Bytes& data = {}) {
    FrameHeader header;
    header.reply = true;
    header.type = type;
    header.request_id = request_id;
    header.data_bytes = static_cast<std::uint32_t>(data.size());
    describe_body(header, body);
    std::array<std::byte, kHeaderBytes> bytes{};
    encode_header(header, bytes);
    Bytes frame(bytes.begin(), bytes.end());
    frame.insert(frame.end(), body.begin(), body.end());
    frame.insert(frame.end(), data.begin(), data.end());
    return frame;
  }
  // A reply with `data` and the sums of `summed`.
  static Bytes read_frame(std::uint64_t request_id, const Bytes& data, const Bytes& summed) {
    ReadReply reply{{{kBytes, true}}, {}};
    append_checksums({0, kBytes}, summed, reply.checksums);
    return frame(MessageType::read, request_id, encode(reply), data);
  }
  void send(const Bytes& bytes) {
    const std::array<std::span<const std::byte>, 1> pieces{bytes};
    (void)env.run(peer->send(pieces));
    env.run_until_idle();
  }

  test::MemoryEnv env{{256u << 20, 1u << 20, 1u << 20}};
  std::unique_ptr<Connection> peer;
  std::unique_ptr<RpcClient> client;
  Bytes into = Bytes(kBytes, std::byte{0xee});
  std::optional<Result<void>> outcome;
  Scope calls{env.executor};
  const Bytes first = pattern(kBytes, 1), second = pattern(kBytes, 2);
};

// The sums come from where the data was written: what does not match them is not the data.
TEST_F(RpcClientTest, refuses_data_that_does_not_match_its_sums) {
  send(read_frame(1, first, second));
  ASSERT_TRUE(outcome);
  EXPECT_TRUE(is(outcome->error(), RemoteError::bad_checksum));
  EXPECT_FALSE(client->broken());
}

TEST_F(RpcClientTest, takes_the_first_of_two_answers) {
  Bytes both = read_frame(1, first, first);
  const Bytes again = read_frame(1, second, second);
  both.insert(both.end(), again.begin(), again.end());
  send(both);
  ASSERT_TRUE(outcome && *outcome);
  EXPECT_TRUE(into == first);
}

// While the connection writes into the caller's buffer the caller must not go away.
TEST_F(RpcClientTest, waits_for_data_on_its_way_when_the_deadline_passes) {
  const Bytes bytes = read_frame(1, first, first);
  const auto cut = bytes.end() - kBytes / 2;
  send(Bytes(bytes.begin(), cut));
  env.advance(seconds(3));
  EXPECT_FALSE(outcome);
  send(Bytes(cut, bytes.end()));
  ASSERT_TRUE(outcome && *outcome);
  EXPECT_TRUE(into == first);
}

TEST_F(RpcClientTest, gives_up_on_answers_to_questions_that_nobody_asked) {
  send(read_frame(2, first, first));
  ASSERT_TRUE(outcome);
  EXPECT_TRUE(is(outcome->error(), WireError::unexpected_frame));
  EXPECT_TRUE(client->broken());
}

}  // namespace
}  // namespace sarsen::wire
