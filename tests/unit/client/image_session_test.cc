#include "dataplane/client/image_session.h"

#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "dataplane/client/error.h"
#include "dataplane/runtime/scope.h"
#include "dataplane/wire/error.h"
#include "dataplane/wire/rpc_server.h"
#include "tests/support/memory_env.h"
#include "tests/support/memory_service.h"

namespace sarsen {
namespace {

using Bytes = std::vector<std::byte>;
using wire::CallContext;
using wire::Changed;

constexpr PoolId kPool{1};
constexpr ImageId kImage{9};
constexpr wire::HolderId kHolder{0x77};

Bytes pattern(std::size_t count, std::size_t seed) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(1 + (i + seed) % 251);
  return bytes;
}

// An OSD of memory that notes what it was asked, and answers errors that a test has prepared.
class NotingService final : public wire::RpcService {
 public:
  explicit NotingService(const Env& env) : memory(env) {}

  // Answered also while operations are held.
  Task<Result<wire::PgHelloReply>> handle(CallContext, wire::PgHello request) override {
    ++hellos;
    co_return wire::PgHelloReply{.epoch = request.pg.epoch, .highest_operation = {}};
  }
  Task<Result<wire::ReadResult>> handle(CallContext context, wire::ReadRequest request) override {
    return memory.handle(context, request);
  }
  Task<Result<Changed>> handle(CallContext context, wire::WriteRequest request,
                               Buffer data) override {
    writes.push_back(request.origin);
    return memory.handle(context, std::move(request), std::move(data));
  }
  Task<Result<Changed>> handle(CallContext context, wire::TrimRequest request) override {
    return memory.handle(context, request);
  }
  Task<Result<Changed>> handle(CallContext context, wire::WriteZeroesRequest request) override {
    return memory.handle(context, request);
  }
  Task<Result<Changed>> handle(CallContext context, wire::RemoveRequest request) override {
    return memory.handle(context, request);
  }
  Task<Result<Changed>> handle(CallContext context, wire::BarrierRequest request) override {
    return memory.handle(context, request);
  }
  Task<Result<wire::StatusReply>> handle(CallContext context,
                                         wire::StatusRequest request) override {
    return memory.handle(context, request);
  }

  test::MemoryService memory;
  std::vector<wire::Origin> writes;
  int hellos = 0;
};

class ImageSessionTest : public testing::Test {
 protected:
  ImageSessionTest() {
    content.epoch = MapEpoch(1);
    content.osds[wire::OsdId(7)] = {
        .id = wire::OsdId(7), .node = "a", .address = "memory", .up = true};
    content.pools[kPool] = {
        .id = kPool,
        .name = "p",
        .group_bits = 1,
        .groups = {{.epoch = PgEpoch(1), .in_sync = {wire::OsdId(7)}, .active = true},
                   {.epoch = PgEpoch(1), .in_sync = {wire::OsdId(7)}, .active = true}}};
    content.images[kImage] = {.id = kImage,
                              .name = "disk",
                              .pool = kPool,
                              .size_bytes = 4 * std::uint64_t{kObjectBytes},
                              .family = 9,
                              .last_attach_epoch = AttachEpoch(3),
                              .attachments = {{.holder = kHolder, .epoch = AttachEpoch(3)}}};
    map.set(content);
    start_server();
  }
  ~ImageSessionTest() override {
    if (session) env.run(session->stop());
    stop_server();
  }

  void start_server() {
    wire::ServerIdentity identity;
    identity.osd = wire::OsdId(7);
    wire::RpcServerLimits limits;
    limits.drain_max = Duration(0);
    server = std::make_unique<wire::RpcServer>(env.env, service, identity, limits);
    ASSERT_TRUE(server->listen("memory"));
  }
  void stop_server() {
    if (!server) return;
    service.memory.release();
    env.run(server->stop());
    server.reset();
  }
  void open(ImageSessionOptions more = {}) {
    more.image = kImage;
    more.holder = kHolder;
    more.attach_epoch = AttachEpoch(3);
    more.session = wire::SessionId(1);
    auto opened = env.run(ImageSession::open(env.env, map, more));
    ASSERT_TRUE(opened) << opened.error().message();
    session = *std::move(opened);
  }
  void publish() {
    content.epoch = content.epoch.next();
    map.set(content);
    env.run_until_idle();
  }
  Result<void> write(std::uint64_t offset, const Bytes& data) {
    return env.run(session->write(offset, data));
  }
  Bytes read(std::uint64_t offset, std::size_t length) {
    Bytes bytes(length, std::byte{0xee});
    const auto result = env.run(session->read(offset, bytes));
    EXPECT_TRUE(result) << result.error().message();
    return bytes;
  }
  // Starts a write that a test ends later.
  void begin_write(std::uint64_t offset, const Bytes* data, std::optional<Result<void>>* outcome) {
    scope.spawn(keep(session.get(), offset, data, outcome));
    env.run_until_idle();
  }
  static Task<void> keep(ImageSession* session, std::uint64_t offset, const Bytes* data,
                         std::optional<Result<void>>* outcome) {
    outcome->emplace(co_await session->write(offset, *data));
  }

  test::MemoryEnv env;
  NotingService service{env.env};
  FixedMap map{env.executor};
  ClusterMap content;
  std::unique_ptr<wire::RpcServer> server;
  std::unique_ptr<ImageSession> session;
  Scope scope{env.executor};
};

// The plain promise of a block device, over the edges of objects and of blocks.
TEST_F(ImageSessionTest, reads_back_what_was_written_over_objects) {
  open();
  EXPECT_EQ(session->size_bytes(), 4 * std::uint64_t{kObjectBytes});
  const Bytes data = pattern(kObjectBytes + 5000, 1);
  ASSERT_TRUE(write(kObjectBytes - 1234, data));
  Bytes expected(data.size() + 200);
  std::copy(data.begin(), data.end(), expected.begin() + 100);
  EXPECT_EQ(read(kObjectBytes - 1334, data.size() + 200), expected);
  ASSERT_TRUE(env.run(session->trim(kObjectBytes, kObjectBytes)));
  EXPECT_EQ(read(kObjectBytes, 4096), Bytes(4096));
  EXPECT_TRUE(env.run(session->flush()));
  EXPECT_EQ(session->stats().writes, 1u);
}

// Sparse copies of images (qemu-img convert, nbdcopy) ask for the map of all of it.
TEST_F(ImageSessionTest, status_is_merged_over_objects) {
  open();
  ASSERT_TRUE(write(kObjectBytes - 8192, pattern(16384, 1)));
  const auto runs = env.run(session->status(0, 3 * std::uint64_t{kObjectBytes}, 100));
  ASSERT_TRUE(runs);
  ASSERT_EQ(runs->size(), 3u);
  EXPECT_EQ((*runs)[0].length_bytes, kObjectBytes - 8192u);
  EXPECT_EQ((*runs)[1].length_bytes, 16384u);
  EXPECT_TRUE((*runs)[1].allocated);
  EXPECT_EQ((*runs)[2].length_bytes, 2u * kObjectBytes - 8192u);
  const auto few = env.run(session->status(0, kObjectBytes, 1));
  ASSERT_TRUE(few);
  EXPECT_EQ(few->size(), 1u);
}

// I-CLIENT-2, I-CLIENT-3: a resend under a new id, or before a hello, can land on top of a later
// write.
TEST_F(ImageSessionTest, a_write_cut_off_is_sent_again_with_its_id_after_a_hello) {
  open();
  service.memory.hold();
  const Bytes data = pattern(4096, 1);
  std::optional<Result<void>> outcome;
  begin_write(0, &data, &outcome);
  ASSERT_EQ(service.writes.size(), 1u);
  EXPECT_EQ(service.hellos, 1);
  service.memory.fail_with(wire::make_error(wire::RemoteError::stopped));
  stop_server();
  service.memory.fail_with({});
  env.advance(seconds(1));
  EXPECT_FALSE(outcome) << "a block device sees no error because a daemon restarts";
  EXPECT_EQ(session->stats().waiting, 1u);
  start_server();
  env.advance(seconds(1));
  ASSERT_TRUE(outcome);
  EXPECT_TRUE(*outcome);
  ASSERT_GE(service.writes.size(), 2u);
  EXPECT_EQ(service.writes.front().operation, service.writes.back().operation);
  EXPECT_EQ(service.hellos, 2);
  EXPECT_EQ(session->stats().waiting, 0u);
  EXPECT_EQ(read(0, 4096), data);
}

// R7: two writes of one block in flight at a time could be reordered by a resend.
TEST_F(ImageSessionTest, changes_that_overlap_are_sent_one_after_the_other) {
  open();
  service.memory.hold();
  const Bytes first = pattern(8192, 1);
  const Bytes second = pattern(4096, 2);
  std::optional<Result<void>> one;
  std::optional<Result<void>> two;
  std::optional<Result<void>> elsewhere;
  begin_write(0, &first, &one);
  begin_write(4096, &second, &two);
  begin_write(16384, &second, &elsewhere);
  EXPECT_EQ(service.writes.size(), 2u) << "the second waits, the one elsewhere does not";
  service.memory.release();
  env.run_until_idle();
  ASSERT_TRUE(one && two && elsewhere);
  EXPECT_EQ(service.writes.size(), 3u);
  EXPECT_EQ(read(4096, 4096), second);
}

// A fenced client must fail its I/O at once: its node may hold a mounted file system.
TEST_F(ImageSessionTest, operations_end_when_the_map_loses_the_attachment) {
  open();
  service.memory.hold();
  const Bytes data = pattern(4096, 1);
  std::optional<Result<void>> outcome;
  begin_write(0, &data, &outcome);
  content.images[kImage].attachments.clear();
  publish();
  ASSERT_TRUE(outcome);
  EXPECT_TRUE(is(outcome->error(), ClientError::fenced)) << outcome->error().message();
  EXPECT_TRUE(session->fenced());
  EXPECT_TRUE(is(write(0, data).error(), ClientError::fenced));
}

// The same when an OSD hears of it first.
TEST_F(ImageSessionTest, operations_end_when_an_osd_says_fenced) {
  open();
  service.memory.fail_with(wire::make_error(wire::RemoteError::fenced));
  EXPECT_TRUE(is(write(0, pattern(4096, 1)).error(), ClientError::fenced));
  EXPECT_TRUE(session->fenced());
}

// A file system that grew must be able to use what it grew by, and not a byte more.
TEST_F(ImageSessionTest, the_size_follows_the_map) {
  open();
  const std::uint64_t end = 4 * std::uint64_t{kObjectBytes};
  EXPECT_TRUE(is(write(end, pattern(4096, 1)).error(), ClientError::out_of_range));
  content.images[kImage].size_bytes = end + 4096;
  publish();
  EXPECT_EQ(session->size_bytes(), end + 4096);
  EXPECT_TRUE(write(end, pattern(4096, 1)));
  EXPECT_TRUE(is(write(end, pattern(4097, 1)).error(), ClientError::out_of_range));
}

// The OSD moved on first: the client gets the map and sends again, and nobody sees an error.
TEST_F(ImageSessionTest, a_stale_epoch_is_survived_by_getting_the_map) {
  open();
  service.memory.fail_with(wire::make_error(wire::RemoteError::stale_epoch));
  const Bytes data = pattern(4096, 1);
  std::optional<Result<void>> outcome;
  begin_write(0, &data, &outcome);
  EXPECT_FALSE(outcome);
  service.memory.fail_with({});
  for (auto& group : content.pools[kPool].groups) group.epoch = PgEpoch(2);
  publish();
  ASSERT_TRUE(outcome) << "a newer map is worth a try at once";
  EXPECT_TRUE(*outcome);
  EXPECT_EQ(service.hellos, 2) << "one for each configuration of the group";
}

// Bounded waiting is for those who ask for it.
TEST_F(ImageSessionTest, an_operation_ends_after_operation_max) {
  ImageSessionOptions options;
  options.operation_max = seconds(3);
  open(options);
  stop_server();
  const Bytes data = pattern(4096, 1);
  std::optional<Result<void>> outcome;
  begin_write(0, &data, &outcome);
  env.advance(seconds(1));
  EXPECT_FALSE(outcome);
  env.advance(seconds(3));
  ASSERT_TRUE(outcome);
  EXPECT_TRUE(is(outcome->error(), ClientError::timed_out)) << outcome->error().message();
}

// A full pool is an error at once unless the caller has patience for it.
TEST_F(ImageSessionTest, no_space_is_an_error_or_waits) {
  open();
  service.memory.fail_with(wire::make_error(wire::RemoteError::no_space));
  EXPECT_TRUE(is(write(0, pattern(4096, 1)).error(), RuntimeError::no_space));
  env.run(session->stop());
  ImageSessionOptions patient;
  patient.no_space_max = seconds(60);
  open(patient);
  const Bytes data = pattern(4096, 1);
  std::optional<Result<void>> outcome;
  begin_write(0, &data, &outcome);
  env.advance(seconds(2));
  EXPECT_FALSE(outcome);
  service.memory.fail_with({});
  env.advance(seconds(2));
  ASSERT_TRUE(outcome);
  EXPECT_TRUE(*outcome);
}

// What trying again cannot mend goes to the caller as it is.
TEST_F(ImageSessionTest, corrupt_data_is_an_error) {
  open();
  service.memory.fail_with(wire::make_error(wire::RemoteError::corrupt));
  Bytes bytes(4096);
  const auto result = env.run(session->read(0, bytes));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().error_class(), ErrorClass::corrupt);
}

// A stop that waits for an OSD which is gone would hang the shutdown of a node.
TEST_F(ImageSessionTest, stop_ends_what_waits) {
  open();
  stop_server();
  const Bytes data = pattern(4096, 1);
  std::optional<Result<void>> outcome;
  begin_write(0, &data, &outcome);
  env.run(session->stop());
  ASSERT_TRUE(outcome);
  EXPECT_TRUE(is(outcome->error(), ClientError::stopped));
}

// An attachment that ended before the session began must not look like one that is to come.
TEST_F(ImageSessionTest, open_says_what_is_missing) {
  const ImageSessionOptions gone{
      .image = kImage, .holder = kHolder, .attach_epoch = AttachEpoch(2)};
  auto opened = env.run(ImageSession::open(env.env, map, gone));
  ASSERT_FALSE(opened);
  EXPECT_TRUE(is(opened.error(), ClientError::fenced));
  const ImageSessionOptions no_image{
      .image = ImageId(10), .holder = kHolder, .open_max = Duration(0)};
  opened = env.run(ImageSession::open(env.env, map, no_image));
  ASSERT_FALSE(opened);
  EXPECT_TRUE(is(opened.error(), ClientError::not_found));
}

}  // namespace
}  // namespace sarsen
