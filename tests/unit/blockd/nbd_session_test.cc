#include "dataplane/blockd/nbd/nbd_session.h"

#include <cstring>

#include <gtest/gtest.h>

#include "dataplane/blockd/nbd/nbd_error.h"
#include "dataplane/blockd/nbd/nbd_server.h"
#include "tests/unit/blockd/nbd_client.h"

namespace sarsen::nbd {
namespace {

constexpr std::uint64_t kSize = 64 << 20;

// A server with one export, and one client in transmission.
class NbdSessionTest : public testing::Test {
 protected:
  explicit NbdSessionTest(test::MemoryEnvLimits env_limits = {256u << 20, 64u << 20, 7})
      : env(env_limits) {
    limits.session.requests_in_flight_max = 8;
    limits.session.stall_max = seconds(10);
    limits.session.handshake_max = seconds(20);
  }
  ~NbdSessionTest() override { stop(); }

  void start() {
    server = std::make_unique<Server>(env.env, exports, limits);
    ASSERT_TRUE(server->listen("memory"));
  }
  std::unique_ptr<RawClient> connect() {
    auto connection = env.run(env.network.connect("memory"));
    return std::make_unique<RawClient>(env, std::move(*connection));
  }
  std::unique_ptr<RawClient> connect_to_default(bool structured) {
    auto client = connect();
    client->connect_to_default(structured);
    return client;
  }
  void stop() {
    if (server) env.run(server->stop());
    server.reset();
  }
  static Bytes simple_reply(Errno error, std::uint64_t cookie) {
    return message(kSimpleReplyMagic, error, cookie);
  }
  static Bytes done_chunk(std::uint64_t cookie) {
    return message(kStructuredReplyMagic, kChunkDone, ChunkType::none, cookie, std::uint32_t{0});
  }
  test::MemoryEnv env;
  OneExport exports{env.executor, kSize};
  ServerLimits limits;
  std::unique_ptr<Server> server;
};

struct Chunk {
  std::uint16_t flags = 0;
  ChunkType type{};
  std::uint64_t cookie = 0;
  Bytes payload;
};

Chunk take_chunk(RawClient& client) {
  const Bytes bytes = client.take(kChunkHeaderBytes);
  BigEndianReader reader(bytes);
  Chunk chunk;
  EXPECT_EQ(reader.u32(), kStructuredReplyMagic);
  chunk.flags = reader.u16();
  chunk.type = ChunkType(reader.u16());
  chunk.cookie = reader.u64();
  const std::uint32_t length = reader.u32();
  chunk.payload = client.take(length);
  EXPECT_EQ(chunk.payload.size(), length);
  return chunk;
}

Errno error_of(const Chunk& chunk) {
  EXPECT_EQ(chunk.type, ChunkType::error);
  BigEndianReader reader(chunk.payload);
  return Errno(reader.u32());
}

Bytes pattern(std::size_t count, int seed) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<std::byte>(1 + (i * 31 + static_cast<std::size_t>(seed)) % 255);
  }
  return bytes;
}

// The everyday path, with receives of 7 bytes so that every message is cut everywhere.
TEST_F(NbdSessionTest, reads_back_what_was_written_with_simple_replies) {
  start();
  auto client = connect_to_default(false);
  const Bytes data = pattern(5000, 1);
  client->send(request_message(Command::write, kCommandFua, 11, 1234, 5000));
  client->send(data);
  EXPECT_EQ(client->take(1000), simple_reply(Errno::none, 11));
  client->send(request_message(Command::read, 0, 12, 1234, 5000));
  EXPECT_EQ(client->take(kSimpleReplyBytes), simple_reply(Errno::none, 12));
  EXPECT_EQ(client->take(6000), data);
}

// The longest request there may be, ends unaligned, needs no more memory than a session may hold.
TEST_F(NbdSessionTest, carries_the_longest_requests_in_segments) {
  env.network.set_receive_bytes(1 << 20);
  start();
  auto simple = connect_to_default(false);
  const std::uint32_t length = kPayloadBytesMax;
  const Bytes data = pattern(length, 3);
  simple->send(request_message(Command::write, 0, 1, 777, length));
  simple->send(data);
  EXPECT_EQ(simple->take(1000), simple_reply(Errno::none, 1));
  simple->send(request_message(Command::read, 0, 2, 777, length));
  EXPECT_EQ(simple->take(kSimpleReplyBytes), simple_reply(Errno::none, 2));
  EXPECT_TRUE(simple->take(length + 1) == data);

  auto structured = connect_to_default(true);
  structured->send(request_message(Command::read, 0, 3, 777, length));
  Bytes joined(length);
  std::size_t bytes = 0;
  while (true) {
    const Chunk chunk = take_chunk(*structured);
    if (chunk.type == ChunkType::none) break;
    ASSERT_EQ(chunk.type, ChunkType::offset_data);
    BigEndianReader reader(chunk.payload);
    const std::uint64_t at = reader.u64() - 777;
    ASSERT_LE(at + chunk.payload.size() - 8, length);
    std::copy(chunk.payload.begin() + 8, chunk.payload.end(),
              joined.begin() + static_cast<std::ptrdiff_t>(at));
    bytes += chunk.payload.size() - 8;
  }
  EXPECT_EQ(bytes, length);
  EXPECT_TRUE(joined == data);
  EXPECT_EQ(structured->arrived(), 0u);
  EXPECT_LE(env.buffers.bytes_used_most(), limits.session.bytes_in_flight_max);
}

// One reply per request, whatever became of its segments.
TEST_F(NbdSessionTest, answers_a_long_request_that_failed_once) {
  start();
  auto client = connect_to_default(true);
  exports.target->fail_with(make_error(RuntimeError::io_error));
  client->send(request_message(Command::read, 0, 1, 100, 3 << 20));
  EXPECT_EQ(error_of(take_chunk(*client)), Errno::io);
  client->send(request_message(Command::write, 0, 2, 100, 3 << 20));
  client->send(Bytes(3 << 20));
  EXPECT_EQ(error_of(take_chunk(*client)), Errno::io);
  exports.target->fail_with({});
  client->send(request_message(Command::flush, 0, 3, 0, 0));
  EXPECT_EQ(client->take(100), done_chunk(3));
}

// The pool is shared with others of the shard: a guest must not see an error for a busy moment.
TEST_F(NbdSessionTest, waits_for_memory_that_others_use) {
  start();
  auto client = connect_to_default(false);
  auto others = env.buffers.allocate((256u << 20) - 4096);
  client->send(request_message(Command::read, 0, 1, 0, 8192));
  env.advance(seconds(1));
  EXPECT_EQ(client->arrived(), 0u);
  *others = {};
  env.advance(seconds(1));
  EXPECT_EQ(client->arrived(), kSimpleReplyBytes + 8192);
}

// A session that waits for memory must not outlive its connection, nor hold up a stop.
TEST_F(NbdSessionTest, stops_waiting_for_memory_when_it_is_ended) {
  limits.drain_max = seconds(1);
  start();
  auto client = connect_to_default(false);
  auto others = env.buffers.allocate((256u << 20) - 4096);
  client->send(request_message(Command::read, 0, 1, 0, 8192));
  Scope scope(env.executor);
  scope.spawn(server->stop());
  env.run_until_idle();
  EXPECT_EQ(scope.size(), 1u);
  env.advance(seconds(1));
  EXPECT_EQ(scope.size(), 0u);
  server.reset();
}

TEST_F(NbdSessionTest, sends_holes_for_long_zeros_and_data_for_the_rest) {
  start();
  auto client = connect_to_default(true);
  const Bytes data = pattern(4096, 1);
  constexpr std::uint64_t kStart = 3 << 20;
  client->send(request_message(Command::write, 0, 1, kStart + 65536, 4096));
  client->send(data);
  EXPECT_EQ(take_chunk(*client).type, ChunkType::none);
  client->send(request_message(Command::read, 0, 2, kStart, 131072));
  const Chunk hole = take_chunk(*client);
  EXPECT_EQ(hole.type, ChunkType::offset_hole);
  EXPECT_EQ(hole.payload, message(kStart, std::uint32_t{65536}));
  const Chunk middle = take_chunk(*client);
  EXPECT_EQ(middle.type, ChunkType::offset_data);
  Bytes expected = message(kStart + 65536);
  expected.insert(expected.end(), data.begin(), data.end());
  EXPECT_EQ(middle.payload, expected);
  const Chunk tail = take_chunk(*client);
  EXPECT_EQ(tail.type, ChunkType::offset_hole);
  EXPECT_EQ(tail.payload, message(kStart + 65536 + 4096, std::uint32_t{65536 - 4096}));
  EXPECT_EQ(tail.flags, kChunkDone);
  EXPECT_EQ(client->arrived(), 0u);
}

// Clients that ask for one piece do not reassemble: a hole would be taken for all of the answer.
TEST_F(NbdSessionTest, does_not_fragment_when_asked_not_to) {
  start();
  auto client = connect_to_default(true);
  client->send(request_message(Command::read, kCommandDontFragment, 2, 0, 65536));
  const Chunk all = take_chunk(*client);
  EXPECT_EQ(all.type, ChunkType::offset_data);
  EXPECT_EQ(all.flags, kChunkDone);
  EXPECT_EQ(all.payload.size(), 8 + 65536u);
}

TEST_F(NbdSessionTest, tells_allocated_from_free_after_writes_trims_and_zeroing) {
  start();
  auto client = connect_to_default(true);
  const auto status = [&](std::uint16_t flags) {
    client->send(request_message(Command::block_status, flags, 9, 0, 65536));
    return take_chunk(*client).payload;
  };
  const std::uint32_t hole = kStateHole | kStateZero;
  client->send(request_message(Command::write_zeroes, kCommandNoHole, 1, 4096, 8192));
  take_chunk(*client);
  EXPECT_EQ(status(0), message(kAllocationContextId, std::uint32_t{4096}, hole, std::uint32_t{8192},
                               std::uint32_t{0}, std::uint32_t{65536 - 12288}, hole));
  EXPECT_EQ(status(kCommandReqOne), message(kAllocationContextId, std::uint32_t{4096}, hole));
  client->send(request_message(Command::trim, 0, 2, 0, 65536));
  take_chunk(*client);
  EXPECT_EQ(status(0), message(kAllocationContextId, std::uint32_t{65536}, hole));
}

// A refused write must not leave its payload in the stream: the next request would be garbage.
TEST_F(NbdSessionTest, answers_wrong_requests_and_stays_in_step) {
  start();
  auto client = connect_to_default(true);
  const auto refused = [&](Command command, std::uint16_t flags, std::uint64_t offset,
                           std::uint32_t length) {
    client->send(request_message(command, flags, 5, offset, length));
    if (command == Command::write) client->send(Bytes(length));
    const Chunk chunk = take_chunk(*client);
    EXPECT_EQ(chunk.cookie, 5u);
    EXPECT_EQ(chunk.flags, kChunkDone);
    return error_of(chunk);
  };
  EXPECT_EQ(refused(Command::write, 0, kSize - 10, 11), Errno::no_space);
  EXPECT_EQ(refused(Command::write_zeroes, 0, kSize, 1), Errno::no_space);
  EXPECT_EQ(refused(Command::read, 0, kSize, 1), Errno::invalid);
  EXPECT_EQ(refused(Command::read, 0, ~std::uint64_t{0}, 4096), Errno::invalid);
  EXPECT_EQ(refused(Command::trim, 0, 0, 0), Errno::invalid);
  EXPECT_EQ(refused(Command::read, kCommandNoHole, 0, 1), Errno::invalid);
  EXPECT_EQ(refused(Command::write_zeroes, kCommandFastZero, 0, 4096), Errno::invalid);
  EXPECT_EQ(refused(Command::write, 0, 0, kPayloadBytesMax + 1), Errno::invalid);
  EXPECT_EQ(refused(Command::read, kCommandDontFragment, 0, kPayloadBytesMax + 1), Errno::overflow);
  EXPECT_EQ(refused(Command::flush, 0, 1, 0), Errno::invalid);
  EXPECT_EQ(refused(Command::cache, 0, 0, 4096), Errno::invalid);
  EXPECT_EQ(refused(Command(99), 0, 0, 4096), Errno::invalid);
  client->send(request_message(Command::flush, 0, 6, 0, 0));
  EXPECT_EQ(client->take(100), done_chunk(6));
}

TEST_F(NbdSessionTest, refuses_changes_of_a_read_only_export) {
  exports.target = std::make_shared<test::MemoryTarget>(env.executor, kSize, true);
  start();
  auto client = connect_to_default(false);
  client->send(request_message(Command::write, 0, 1, 0, 4096));
  client->send(Bytes(4096));
  EXPECT_EQ(client->take(100), simple_reply(Errno::not_permitted, 1));
  client->send(request_message(Command::trim, 0, 2, 0, 4096));
  EXPECT_EQ(client->take(100), simple_reply(Errno::not_permitted, 2));
  client->send(request_message(Command::read, 0, 3, 0, 1));
  EXPECT_EQ(client->take(100).size(), kSimpleReplyBytes + 1);
}

TEST_F(NbdSessionTest, passes_on_what_the_target_answers) {
  start();
  auto client = connect_to_default(true);
  exports.target->fail_with(make_error(RuntimeError::no_space, "pool rbd is full"));
  client->send(request_message(Command::write_zeroes, 0, 1, 0, 4096));
  const Chunk chunk = take_chunk(*client);
  EXPECT_EQ(error_of(chunk), Errno::no_space);
  const std::string text(reinterpret_cast<const char*>(chunk.payload.data()), chunk.payload.size());
  EXPECT_NE(text.find("pool rbd is full"), std::string::npos);
  client->send(request_message(Command::read, 0, 2, 0, 4096));
  EXPECT_EQ(error_of(take_chunk(*client)), Errno::no_space);
}

// One slow request must not hold up the others.
TEST_F(NbdSessionTest, answers_out_of_order) {
  start();
  auto client = connect_to_default(false);
  exports.target->hold();
  client->send(request_message(Command::flush, 0, 1, 0, 0));
  client->send(request_message(Command(99), 0, 2, 0, 0));
  EXPECT_EQ(client->take(100), simple_reply(Errno::invalid, 2));
  exports.target->release();
  env.run_until_idle();
  EXPECT_EQ(client->take(100), simple_reply(Errno::none, 1));
}

TEST_F(NbdSessionTest, hangs_up_when_it_cannot_follow_the_stream) {
  start();
  auto client = connect_to_default(false);
  client->send(
      message(std::uint32_t{0xdeadbeef}, std::uint64_t{0}, std::uint64_t{0}, std::uint64_t{0}));
  EXPECT_TRUE(client->ended());
  EXPECT_EQ(server->stats().connections, 0u);
  EXPECT_EQ(server->stats().connections_failed, 1u);
}

TEST_F(NbdSessionTest, finishes_what_is_in_flight_after_a_disconnect) {
  start();
  auto client = connect_to_default(false);
  exports.target->hold();
  client->send(request_message(Command::flush, 0, 1, 0, 0));
  client->send(request_message(Command::disconnect, 0, 2, 0, 0));
  EXPECT_FALSE(client->ended());
  exports.target->release();
  env.run_until_idle();
  EXPECT_EQ(client->take(100), simple_reply(Errno::none, 1));
  EXPECT_TRUE(client->ended());
  EXPECT_EQ(server->stats().connections_failed, 0u);
}

// At most requests_in_flight_max reach the target, however many a client sends.
TEST_F(NbdSessionTest, takes_no_more_requests_than_it_has_slots) {
  start();
  auto client = connect_to_default(false);
  exports.target->hold();
  for (std::uint64_t i = 0; i < 20; ++i) {
    client->send(request_message(Command::flush, 0, i, 0, 0));
  }
  EXPECT_EQ(exports.target->waiting(), 8u);
  exports.target->release();
  env.run_until_idle();
  EXPECT_EQ(client->arrived(), 20 * kSimpleReplyBytes);
}

// Connections beyond the limit are ended at once and leave the others alone.
TEST_F(NbdSessionTest, bounds_the_number_of_connections) {
  limits.connections_max = 1;
  start();
  auto first = connect_to_default(false);
  auto second = connect();
  second->listen();
  EXPECT_TRUE(second->ended());
  EXPECT_EQ(server->stats().connections_refused, 1u);
  first->send(request_message(Command::flush, 0, 1, 0, 0));
  EXPECT_EQ(first->take(100), simple_reply(Errno::none, 1));
  first->hang_up();
  auto third = connect_to_default(false);
  EXPECT_FALSE(third->ended());
}

TEST_F(NbdSessionTest, ends_a_handshake_that_takes_too_long) {
  start();
  auto client = connect();
  client->listen();
  for (int i = 0; i < 3; ++i) env.advance(seconds(5));
  EXPECT_FALSE(client->ended());
  for (int i = 0; i < 2; ++i) env.advance(seconds(5));
  EXPECT_TRUE(client->ended());
}

// A connection that is silent between requests holds nothing and may stay for ever.
TEST_F(NbdSessionTest, leaves_an_idle_client_alone) {
  start();
  auto client = connect_to_default(false);
  for (int i = 0; i < 1000; ++i) env.advance(seconds(5));
  client->send(request_message(Command::flush, 0, 1, 0, 0));
  EXPECT_EQ(client->take(100), simple_reply(Errno::none, 1));
}

TEST_F(NbdSessionTest, ends_a_client_that_stops_in_the_middle_of_a_payload) {
  start();
  auto client = connect_to_default(false);
  client->send(request_message(Command::write, 0, 1, 0, 1 << 20));
  client->send(Bytes(100));
  EXPECT_GT(env.buffers.bytes_used(), 0u);
  for (int i = 0; i < 4; ++i) env.advance(seconds(5));
  EXPECT_TRUE(client->ended());
  EXPECT_EQ(env.buffers.bytes_used(), 0u);
  EXPECT_EQ(server->stats().connections_failed, 1u);
}

// Stopping ends what runs, answers what comes late, and only then closes.
TEST_F(NbdSessionTest, drains_before_it_stops) {
  start();
  auto client = connect_to_default(false);
  exports.target->hold();
  client->send(request_message(Command::flush, 0, 1, 0, 0));
  Scope scope(env.executor);
  scope.spawn(server->stop());
  env.run_until_idle();
  client->send(request_message(Command::flush, 0, 2, 0, 0));
  EXPECT_EQ(client->take(100), simple_reply(Errno::shutdown, 2));
  EXPECT_FALSE(client->ended());
  exports.target->release();
  env.run_until_idle();
  EXPECT_EQ(client->take(100), simple_reply(Errno::none, 1));
  EXPECT_TRUE(client->ended());
  EXPECT_EQ(scope.size(), 0u);
  server.reset();
}

// Whatever runs first among what is ready: one reply for each request, and nothing is left over
// when the client hangs up or the server stops in the middle.
TEST(NbdOrders, hold_under_every_order_of_ready_coroutines) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    test::MemoryEnv env{{256u << 20, 1u << 20, 3000}};
    env.executor.shuffle(seed);
    Rng rng(seed);
    OneExport exports(env.executor, kSize);
    ServerLimits limits;
    limits.session.requests_in_flight_max = 4;
    Server server(env.env, exports, limits);
    ASSERT_TRUE(server.listen("memory"));
    RawClient client(env, std::move(*env.run(env.network.connect("memory"))));
    client.connect_to_default(true);
    Bytes stream;
    std::size_t replies = 0;
    for (std::uint64_t i = 0; i < 20; ++i, ++replies) {
      constexpr Command kCommands[] = {Command::write, Command::read,         Command::trim,
                                       Command::flush, Command::block_status, Command::cache};
      const Command command = kCommands[rng.below(std::size(kCommands))];
      const bool ranged = command != Command::flush;
      const auto length = static_cast<std::uint32_t>(ranged ? rng.between(1, 1'500'000) : 0);
      const std::uint64_t offset = ranged ? rng.below(kSize - length) : 0;
      const Bytes request = request_message(command, 0, i, offset, length);
      stream.insert(stream.end(), request.begin(), request.end());
      if (command == Command::write) stream.resize(stream.size() + length, std::byte{7});
    }
    const bool in_the_middle = seed % 2 == 0;
    if (in_the_middle) stream.resize(rng.below(stream.size()));
    client.send(std::move(stream));
    std::size_t done = 0;
    while (client.arrived() > 0) done += (take_chunk(client).flags & kChunkDone) != 0 ? 1 : 0;
    if (!in_the_middle) EXPECT_EQ(done, replies);
    if (seed % 4 == 0) client.hang_up();
    Scope scope(env.executor);
    scope.spawn(server.stop());
    env.run_until_idle();
    // It waits for the rest of a payload, but not for ever.
    env.advance(limits.drain_max);
    EXPECT_EQ(scope.size(), 0u);
    EXPECT_EQ(env.buffers.bytes_used(), 0u);
  }
}

// With small pipes: what a client does not read has nowhere to go but the server's memory.
class SlowNbdClientTest : public NbdSessionTest {
 protected:
  SlowNbdClientTest() : NbdSessionTest({256u << 20, 4096, 4096}) {
    limits.session.requests_in_flight_max = 64;
    limits.session.bytes_in_flight_max = kBudgetBytesMin;
    limits.bytes_in_flight_max = kBudgetBytesMin;
  }
};

TEST_F(SlowNbdClientTest, that_reads_no_replies_holds_bounded_memory_and_not_for_ever) {
  start();
  auto slow = connect();
  slow->send(message(std::uint32_t{kFixedNewstyle | kNoZeroes}));
  slow->send(option_message(Option::go, message(std::uint32_t{0}, std::uint16_t{0})));
  for (std::uint64_t i = 0; i < 30; ++i) {
    slow->send(request_message(Command::read, 0, i, 0, 3 << 20));
  }
  EXPECT_EQ(env.buffers.bytes_used_most(), kBudgetBytesMin);

  // Another client waits for the shared memory, and gets it once the slow one is ended.
  auto other = connect_to_default(false);
  other->send(request_message(Command::read, 0, 7, 0, 4096));
  EXPECT_EQ(other->arrived(), 0u);
  for (int i = 0; i < 20; ++i) env.advance(seconds(5));
  EXPECT_EQ(other->arrived(), kSimpleReplyBytes + 4096);
  slow->listen();
  EXPECT_TRUE(slow->ended());
  EXPECT_EQ(server->stats().connections_failed, 1u);
}

}  // namespace
}  // namespace sarsen::nbd
