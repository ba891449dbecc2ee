#include <algorithm>
#include <array>

#include <gtest/gtest.h>

#include "dataplane/runtime/error.h"
#include "dataplane/wire/error.h"
#include "dataplane/wire/rpc_client.h"
#include "dataplane/wire/rpc_server.h"
#include "tests/support/memory_env.h"
#include "tests/support/memory_service.h"

namespace sarsen::wire {
namespace {

using Bytes = std::vector<std::byte>;

Bytes pattern(std::size_t count, std::size_t seed) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(1 + (i + seed) % 251);
  return bytes;
}

// A server, and clients over pipes so small that everything is cut into many pieces.
class RpcTest : public testing::Test {
 protected:
  RpcTest() {
    identity.cluster = {1, 2, 3};
    identity.osd = OsdId(7);
    identity.operations_max = 8;
  }
  ~RpcTest() override {
    for (auto& client : clients) env.run(client->stop());
    if (server) env.run(server->stop());
  }

  void start() {
    server = std::make_unique<RpcServer>(env.env, service, identity, limits);
    ASSERT_TRUE(server->listen("memory"));
  }
  Hello hello() {
    Hello hello;
    hello.cluster = identity.cluster;
    hello.holder = HolderId(0x77);
    hello.session = SessionId(3);
    return hello;
  }
  Result<RpcClient*> connect(Hello greeting) {
    auto client = env.run(RpcClient::connect(&env.env, "memory", greeting, Deadline()));
    if (!client) return fail(client.error());
    clients.push_back(std::move(*client));
    return clients.back().get();
  }
  RpcClient& connect() {
    const auto client = connect(hello());
    SARSEN_ASSERT(client, "the server takes the client");
    return **client;
  }
  // A connection that says what a test wants, frame by frame.
  std::unique_ptr<FrameStream> connect_raw() {
    auto connection = env.run(env.network.connect("memory"));
    auto stream = std::make_unique<FrameStream>(env.env, std::move(*connection), limits.stream);
    stream->start();
    FrameHeader header;
    header.type = MessageType::hello;
    Hello greeting = hello();
    greeting.version_min = greeting.version_max = 1;
    (void)env.run(stream->send(header, encode(greeting)));
    const auto answer = env.run(stream->receive());
    EXPECT_FALSE((*answer)->header.error);
    return stream;
  }
  static ObjectAddress object() { return {{}, ImageId(1), ObjectNumber(2)}; }
  static Origin origin() { return {}; }
  Deadline in(Duration duration) { return Deadline::after(env.clock, duration); }

  Result<Changed> write(RpcClient& client, std::uint32_t offset, const Bytes& data) {
    const auto length = static_cast<std::uint32_t>(data.size());
    return env.run(client.write({object(), {offset, length}, origin(), {}}, data, {}));
  }
  Bytes read(RpcClient& client, std::uint32_t offset, std::uint32_t length) {
    Bytes bytes(length, std::byte{0xee});
    const auto result = env.run(client.read({object(), {offset, length}, {}, {}}, bytes, {}));
    EXPECT_TRUE(result) << result.error().message();
    return bytes;
  }

  test::MemoryEnv env{{256u << 20, 10'000, 777}};
  test::MemoryService service{env.env};
  ServerIdentity identity;
  RpcServerLimits limits;
  std::unique_ptr<RpcServer> server;
  std::vector<std::unique_ptr<RpcClient>> clients;
};

TEST_F(RpcTest, reads_back_what_was_written_and_zeros_elsewhere) {
  start();
  RpcClient& client = connect();
  const Bytes data = pattern(10000, 1);
  ASSERT_TRUE(write(client, 8000, data));
  Bytes expected(40000);
  std::copy(data.begin(), data.end(), expected.begin() + 8000 - 1000);
  EXPECT_EQ(read(client, 1000, 40000), expected);
}

TEST_F(RpcTest, carries_whole_objects) {
  start();
  RpcClient& client = connect();
  const Bytes data = pattern(kObjectBytes, 5);
  ASSERT_TRUE(write(client, 0, data));
  EXPECT_EQ(read(client, 0, kObjectBytes), data);
}

TEST_F(RpcTest, carries_every_kind_of_request) {
  start();
  RpcClient& client = connect();
  ASSERT_TRUE(write(client, 0, pattern(16384, 1)));
  const auto trimmed = env.run(client.call(TrimRequest{object(), {4096, 4096}, origin()}, {}));
  ASSERT_TRUE(trimmed);
  EXPECT_EQ(trimmed->sequence, PgSequence(2));
  const StatusRequest ask{object(), {0, 20480}, {}, {}, 10};
  const auto status = env.run(client.call(ask, {}));
  ASSERT_TRUE(status);
  EXPECT_EQ(status->runs,
            (std::vector<wire::Run>{{4096, true}, {4096, false}, {8192, true}, {4096, false}}));
  EXPECT_TRUE(env.run(client.call(WriteZeroesRequest{object(), {0, 4096}, origin(), true}, {})));
  EXPECT_TRUE(env.run(client.call(BarrierRequest{}, {})));
  EXPECT_EQ(env.run(client.call(PgHello{}, {}))->epoch, PgEpoch(1));
  EXPECT_TRUE(env.run(client.call(RemoveRequest{object(), origin()}, {})));
  EXPECT_EQ(read(client, 0, 20480), Bytes(20480));
}

// What the client says about a call must reach the service: accounting and tracing hang on it.
TEST_F(RpcTest, tells_the_service_who_calls_and_for_how_long) {
  start();
  RpcClient& client = connect();
  CallOptions options;
  options.deadline = in(seconds(3));
  options.tenant = 9;
  options.trace = {4, 5};
  options.traffic_class = TrafficClass::background;
  ASSERT_TRUE(env.run(client.call(BarrierRequest{}, options)));
  const CallContext& context = service.last_context();
  EXPECT_EQ(context.holder, HolderId(0x77));
  EXPECT_EQ(context.session, SessionId(3));
  EXPECT_EQ(context.tenant, 9u);
  EXPECT_EQ(context.trace, (TraceId{4, 5}));
  EXPECT_EQ(context.traffic_class, TrafficClass::background);
  EXPECT_EQ(context.deadline, in(seconds(3)));
}

TEST_F(RpcTest, gives_errors_as_the_service_meant_them_and_goes_on) {
  start();
  RpcClient& client = connect();
  service.fail_with(make_error(RemoteError::fenced, "holder 77"));
  const auto refused = write(client, 0, pattern(4096, 1));
  ASSERT_FALSE(refused);
  EXPECT_TRUE(is(refused.error(), RemoteError::fenced));
  EXPECT_EQ(refused.error().detail(), "holder 77");
  Bytes into(4096);
  service.fail_with(make_error(RuntimeError::no_space));
  const auto unread = env.run(client.read({object(), {0, 4096}, {}, {}}, into, {}));
  EXPECT_TRUE(is(unread.error(), RuntimeError::no_space));
  service.fail_with({});
  EXPECT_TRUE(write(client, 0, pattern(4096, 1)));
}

Task<void> note(Task<Result<Changed>> call, std::vector<Result<Changed>>* outcomes) {
  outcomes->push_back(co_await std::move(call));
}

// More calls than the server takes wait their turn; the service never sees more than announced.
TEST_F(RpcTest, keeps_to_the_announced_number_of_operations) {
  start();
  RpcClient& client = connect();
  service.hold();
  std::vector<Result<Changed>> outcomes;
  Scope scope(env.executor);
  for (int i = 0; i < 20; ++i) scope.spawn(note(client.call(BarrierRequest{}, {}), &outcomes));
  env.run_until_idle();
  EXPECT_EQ(service.waiting(), 8u);
  service.release();
  env.run_until_idle();
  EXPECT_EQ(outcomes.size(), 20u);
  EXPECT_TRUE(std::all_of(outcomes.begin(), outcomes.end(), [](auto& o) { return bool(o); }));
}

// A call that timed out is forgotten: its answer, when it comes, must touch nobody else.
TEST_F(RpcTest, ends_calls_at_their_deadline_and_ignores_late_answers) {
  start();
  RpcClient& client = connect();
  ASSERT_TRUE(write(client, 0, pattern(4096, 1)));
  service.hold();
  Bytes into(4096, std::byte{0xee});
  std::optional<Result<void>> outcome;
  const auto ask = [](RpcClient* asker, ReadRequest request, Bytes* bytes, CallOptions options,
                      std::optional<Result<void>>* result) -> Task<void> {
    result->emplace(co_await asker->read(request, *bytes, options));
  };
  Scope scope(env.executor);
  CallOptions options;
  options.deadline = in(seconds(2));
  scope.spawn(ask(&client, {object(), {0, 4096}, {}, {}}, &into, options, &outcome));
  env.advance(seconds(1));
  EXPECT_FALSE(outcome);
  env.advance(seconds(1));
  ASSERT_TRUE(outcome);
  EXPECT_TRUE(is(outcome->error(), RuntimeError::timed_out));
  service.release();
  env.run_until_idle();
  EXPECT_EQ(into, Bytes(4096, std::byte{0xee}));
  EXPECT_EQ(read(client, 0, 4096), pattern(4096, 1));
  EXPECT_FALSE(client.broken());
}

TEST_F(RpcTest, fails_every_call_when_the_connection_ends) {
  start();
  RpcClient& client = connect();
  service.hold();
  std::vector<Result<Changed>> outcomes;
  Scope scope(env.executor);
  for (int i = 0; i < 12; ++i) scope.spawn(note(client.call(BarrierRequest{}, {}), &outcomes));
  env.run_until_idle();
  scope.spawn(server->stop());
  env.run_until_idle();
  EXPECT_TRUE(outcomes.empty());  // it waits for the service
  env.advance(seconds(10));       // and then closes
  EXPECT_EQ(outcomes.size(), 12u);
  for (const auto& outcome : outcomes) {
    EXPECT_TRUE(is(outcome.error(), RuntimeError::connection_reset));
  }
  EXPECT_TRUE(client.broken());
  service.release();
  env.run_until_idle();
}

TEST_F(RpcTest, finishes_and_answers_what_is_under_way_before_it_stops) {
  start();
  RpcClient& client = connect();
  service.hold();
  std::vector<Result<Changed>> outcomes;
  Scope scope(env.executor);
  scope.spawn(note(client.call(BarrierRequest{}, {}), &outcomes));
  env.run_until_idle();
  scope.spawn(server->stop());
  scope.spawn(note(client.call(BarrierRequest{}, {}), &outcomes));
  env.run_until_idle();
  ASSERT_EQ(outcomes.size(), 1u);  // the late one
  EXPECT_TRUE(is(outcomes[0].error(), RemoteError::stopped));
  service.release();
  env.run_until_idle();
  ASSERT_EQ(outcomes.size(), 2u);
  EXPECT_TRUE(outcomes[1]);
  EXPECT_EQ(scope.size(), 0u);
  server.reset();
}

TEST_F(RpcTest, refuses_peers_of_another_cluster_version_or_feature_set) {
  identity.features_offered = identity.features_required = 4;
  start();
  Hello stranger = hello();
  stranger.cluster[0] = 9;
  stranger.features_offered = 4;
  EXPECT_TRUE(is(connect(stranger).error(), RemoteError::wrong_cluster));
  EXPECT_TRUE(is(connect(hello()).error(), RemoteError::version_not_supported));
  Hello demanding = hello();
  demanding.features_offered = demanding.features_required = 12;
  EXPECT_TRUE(is(connect(demanding).error(), RemoteError::version_not_supported));
  Hello fine = hello();
  fine.features_offered = 7;
  const auto client = connect(fine);
  ASSERT_TRUE(client);
  EXPECT_EQ((*client)->server().features, 4u);
  EXPECT_EQ((*client)->server().osd, OsdId(7));
}

// Data that rotted between client and server must not be stored, and must not end the connection.
TEST_F(RpcTest, refuses_data_that_does_not_match_its_sums) {
  start();
  const auto stream = connect_raw();
  const Bytes data = pattern(4096, 1);
  WriteRequest request{object(), {0, 4096}, origin(), {0xbad}};
  FrameHeader header;
  header.type = MessageType::write;
  header.request_id = 5;
  (void)env.run(stream->send(header, encode(request), data));
  const auto answer = env.run(stream->receive());
  ASSERT_TRUE(answer && *answer);
  EXPECT_TRUE((*answer)->header.error);
  EXPECT_EQ((*answer)->header.request_id, 5u);
  EXPECT_TRUE(is(from_reply(*decode<ErrorReply>((*answer)->body)), RemoteError::bad_checksum));
  request.checksums.clear();
  append_checksums(request.range, data, request.checksums);
  (void)env.run(stream->send(header, encode(request), data));
  const auto second = env.run(stream->receive());
  EXPECT_FALSE((*second)->header.error);
  env.run(stream->stop());
}

// A newer client may ask for things this server does not know; it must be told, not cut off.
TEST_F(RpcTest, answers_unknown_requests_and_skips_their_data) {
  start();
  const auto stream = connect_raw();
  FrameHeader header;
  header.type = MessageType(999);
  header.request_id = 1;
  (void)env.run(stream->send(header, Bytes(100), Bytes(50'000)));
  const auto answer = env.run(stream->receive());
  ASSERT_TRUE(answer && *answer);
  EXPECT_TRUE(is(from_reply(*decode<ErrorReply>((*answer)->body)), RemoteError::unsupported));
  header.type = MessageType::barrier;
  (void)env.run(stream->send(header, encode(BarrierRequest{})));
  EXPECT_FALSE((*env.run(stream->receive()))->header.error);
  env.run(stream->stop());
}

TEST_F(RpcTest, ends_a_connection_whose_frames_do_not_decode) {
  start();
  const auto stream = connect_raw();
  FrameHeader header;
  header.type = MessageType::trim;
  header.request_id = 1;
  (void)env.run(stream->send(header, Bytes(3)));
  const auto answer = env.run(stream->receive());
  EXPECT_TRUE(!answer || !*answer);
  EXPECT_EQ(server->stats().connections_failed, 1u);
  EXPECT_EQ(server->stats().connections, 0u);
  env.run(stream->stop());
}

// Before hello a stranger must not hold a place for ever.
TEST_F(RpcTest, ends_a_connection_that_says_nothing) {
  start();
  auto connection = env.run(env.network.connect("memory"));
  env.run_until_idle();
  EXPECT_EQ(server->stats().connections, 1u);
  env.advance(seconds(10));
  EXPECT_EQ(server->stats().connections, 0u);
}

// A client that does not take its answers holds no memory for longer than stall_max.
TEST_F(RpcTest, ends_a_client_that_does_not_take_its_answers) {
  start();
  {
    RpcClient& writer = connect();
    ASSERT_TRUE(write(writer, 0, pattern(100'000, 1)));
  }
  const auto stream = connect_raw();
  FrameHeader header;
  header.type = MessageType::read;
  header.request_id = 1;
  (void)env.run(stream->send(header, encode(ReadRequest{object(), {0, 100'000}, {}, {}})));
  EXPECT_GT(env.buffers.bytes_used(), 0u);
  EXPECT_EQ(server->stats().connections, 2u);
  env.advance(seconds(30));
  EXPECT_EQ(server->stats().connections, 1u);
  EXPECT_EQ(env.buffers.bytes_used(), 0u);
  env.run(stream->stop());
}

// Whatever runs first among what is ready: answers find their calls, data its place, and when one
// end goes away in the middle nothing is left waiting.
TEST(RpcOrders, hold_under_every_order_of_ready_coroutines) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    test::MemoryEnv env{{256u << 20, 5000, 1500}};
    env.executor.shuffle(seed);
    Rng rng(seed);
    test::MemoryService service(env.env);
    ServerIdentity identity;
    identity.operations_max = 4;
    RpcServer server(env.env, service, identity);
    ASSERT_TRUE(server.listen("memory"));
    auto client = env.run(RpcClient::connect(&env.env, "memory", Hello{}, Deadline()));
    ASSERT_TRUE(client);
    Scope scope(env.executor);
    std::vector<Result<Changed>> writes;
    std::vector<Bytes> data;
    for (std::size_t i = 0; i < 12; ++i) data.push_back(pattern(rng.between(1, 30'000), i));
    for (std::size_t i = 0; i < data.size(); ++i) {
      const Range range{static_cast<std::uint32_t>(i * 40'000 + rng.below(4096)),
                        static_cast<std::uint32_t>(data[i].size())};
      const ObjectAddress object{{}, ImageId(1), ObjectNumber(0)};
      scope.spawn(note((*client)->write({object, range, {}, {}}, data[i], {}), &writes));
      Bytes back(range.length);
      if (seed % 3 == 0) continue;
      env.run_until_idle();
      ASSERT_TRUE(env.run((*client)->read({object, range, {}, {}}, back, {})));
      EXPECT_TRUE(back == data[i]);
    }
    if (seed % 2 == 0) {
      scope.spawn(server.stop());
      env.run((*client)->stop());
    } else {
      scope.spawn((*client)->stop());
      env.run(server.stop());
    }
    env.run_until_idle();
    EXPECT_EQ(writes.size(), data.size());
    EXPECT_EQ(scope.size(), 0u);
  }
}

}  // namespace
}  // namespace sarsen::wire
