#include "dataplane/osd/osd.h"

#include <algorithm>
#include <optional>

#include <gtest/gtest.h>

#include "dataplane/wire/codec.h"
#include "dataplane/wire/error.h"
#include "dataplane/wire/rpc_client.h"
#include "tests/sim/run_task.h"
#include "tests/sim/sim_disk.h"
#include "tests/sim/workloads/mon_stand_in.h"
#include "tests/unit/replica/replica_map.h"

namespace sarsen {
namespace {

using test::kHolder;
using test::kImage;
using test::kOsd;
using test::kPool;

constexpr Uuid kCluster{std::byte{4}};

// An OSD in the simulator, with a mon that it can be cut off from.
class OsdTest : public testing::Test {
 protected:
  struct Program final : sim::Program {
    Program(sim::SimNode& node, sim::MonStandIn& mon)
        : map(node.env().executor),
          osd(node.env(), node.disk(), node.blocking_disk(), map, mon,
              {.listen = "tcp:osd:1", .advertised = {}, .node = "a"}, {}, {}),
          stop(node.env().executor),
          scope(node.env().executor) {}
    FixedMap map;
    Osd osd;
    CancelSource stop;
    std::optional<Result<void>> ended;
    Scope scope;
  };

  OsdTest()
      : disk(sim.add_disk({.size_bytes = 16 * kMiB})),
        node(sim.add_node({.disks = {&disk}})),
        client(sim.add_node({})),
        mon(sim, test::replica_map()) {
    client.start();
  }
  void format(Uuid cluster = kCluster) {
    node.set_factory(nullptr);
    node.start();
    const FormatOptions options{.cluster = cluster,
                                .osd_id = kOsd.value,
                                .sizes = {.journal_bytes = 16 * 64 * kKiB,
                                          .segment_bytes = 64 * kKiB,
                                          .chunk_bytes = 64 * kKiB,
                                          .table_region_bytes = 128 * kKiB,
                                          .lane_count = 2}};
    const auto formatted =
        sim::run_task(node, Store::format(node.env(), node.disk(), node.blocking_disk(), options));
    ASSERT_TRUE(formatted && *formatted);
    node.crash(sim::CrashKind::process_kill);
  }
  void start() {
    node.set_factory(
        [this](sim::SimNode& started) { return std::make_unique<Program>(started, mon); });
    node.start();
    mon.follow(node, program().map);
    sim.run_at(node.place(ShardId(0)), [&] { program().scope.spawn(run(&program())); });
  }
  static Task<void> run(Program* program) {
    program->ended.emplace(co_await program->osd.run(program->stop.token()));
  }
  void stop() {
    sim.run_at(node.place(ShardId(0)), [&] { program().stop.cancel(RuntimeError::stopped); });
    ASSERT_TRUE(sim.run_until([&] { return program().ended.has_value(); }, seconds(60)));
  }
  Program& program() { return *static_cast<Program*>(node.program()); }
  bool await_service() {
    return sim.run_until([&] { return program().osd.service() != nullptr; }, seconds(60));
  }
  // What a client is told that says hello to a group, at the epoch of the mon's map.
  Result<wire::PgHelloReply> hello() {
    auto answer = sim::run_task(client, say_hello(&client, mon.map()));
    SARSEN_ASSERT(answer, "the client's node is up");
    return *answer;
  }
  static Task<Result<wire::PgHelloReply>> say_hello(sim::SimNode* from, ClusterMap map) {
    wire::Hello hello;
    hello.holder = kHolder;
    hello.cluster[0] = 4;
    auto connected =
        co_await wire::RpcClient::connect(&from->env(), "tcp:osd:1", hello, Deadline());
    if (!connected) co_return fail(connected.error());
    auto reply =
        co_await (*connected)
            ->call(wire::PgHello{.pg = {kPool, PgNumber(0), map.pools.at(kPool).groups[0].epoch},
                                 .image = kImage,
                                 .attachment = {kHolder, AttachEpoch(3), wire::SessionId(1)},
                                 .first_unacknowledged = wire::OperationId(1)},
                   {});
    co_await (*connected)->stop();
    co_return reply;
  }

  // Asked directly, without a network.
  static wire::CallContext context() {
    wire::CallContext context;
    context.holder = kHolder;
    return context;
  }
  static wire::Attachment attachment() { return {kHolder, AttachEpoch(3), wire::SessionId(1)}; }
  // One that lives in the group to which hello() speaks.
  wire::ObjectAddress object() {
    const PoolEntry& pool = mon.map().pools.at(kPool);
    ObjectNumber number;
    while (placement_group(pool, mon.map().images.at(kImage), number) != PgNumber(0)) {
      number = number.next();
    }
    return {{kPool, PgNumber(0), pool.groups[0].epoch}, kImage, number};
  }
  Result<wire::Changed> write_block(std::uint64_t operation) {
    const wire::OperationId id(operation);
    wire::WriteRequest request{.object = object(),
                               .range = {0, kBlockBytes},
                               .origin = {attachment(), id, id, {}},
                               .checksums = {}};
    auto data = node.env().buffers.allocate(kBlockBytes);
    SARSEN_ASSERT(data, "there is memory");
    std::ranges::fill(data->span(), std::byte{7});
    wire::append_checksums(request.range, data->span(), request.checksums);
    return *sim::run_task(
        node, program().osd.service()->handle(context(), std::move(request), *std::move(data)));
  }

  sim::Simulator sim{{.seed = 1}};
  sim::SimDisk& disk;
  sim::SimNode& node;
  sim::SimNode& client;
  sim::MonStandIn mon;
};

// I-OSD-1: an OSD that serves before the map has its boot may issue a place twice.
TEST_F(OsdTest, it_serves_when_the_map_has_its_boot_and_not_before) {
  format();
  mon.set_reachable(false);
  start();
  sim.run_for(seconds(30));
  EXPECT_EQ(program().osd.service(), nullptr) << "it waits for the mon";
  EXPECT_FALSE(program().ended);
  mon.set_delay_max(seconds(1));
  mon.set_reachable(true);
  ASSERT_TRUE(await_service());
  const auto answer = hello();
  ASSERT_TRUE(answer) << answer.error().message();
  EXPECT_EQ(answer->epoch, PgEpoch(6)) << "the boot raised it";
  EXPECT_GE(program().map.current()->epoch, mon.map().epoch) << "it waited for the map";
  stop();
  EXPECT_TRUE(*program().ended);
  EXPECT_TRUE(mon.last_report().stopping);
  EXPECT_GT(mon.last_report().space.total_blocks, 0u);
}

// A detach is answered when the OSD says that it acts on the map: not at its next regular report.
TEST_F(OsdTest, a_newer_map_is_reported_at_once) {
  format();
  start();
  ASSERT_TRUE(await_service());
  ASSERT_TRUE(hello());
  const MapEpoch without = mon.detach(kImage, kHolder);
  EXPECT_TRUE(sim.run_until([&] { return mon.acted_on(without); }, milliseconds(500)));
  EXPECT_FALSE(hello());
  stop();
}

// With every mon down, running I/O goes on.
TEST_F(OsdTest, a_mon_that_goes_away_stops_nothing) {
  format();
  start();
  ASSERT_TRUE(await_service());
  mon.set_reachable(false);
  sim.run_for(seconds(60));
  EXPECT_TRUE(hello());
  const std::uint64_t before = mon.reports();
  mon.set_reachable(true);
  EXPECT_TRUE(sim.run_until([&] { return mon.reports() > before; }, seconds(10)));
  stop();
}

// A second process with a copy of the device has booted: the first must not go on.
TEST_F(OsdTest, it_ends_when_a_later_boot_is_known) {
  format();
  start();
  ASSERT_TRUE(await_service());
  ASSERT_TRUE(mon.boot_osd({.osd = kOsd, .boot_id = 1, .address = "tcp:other:1"}));
  ASSERT_TRUE(sim.run_until([&] { return program().ended.has_value(); }, seconds(60)));
  ASSERT_FALSE(*program().ended);
  EXPECT_TRUE(is(program().ended->error(), MonError::gone));
}

// Nothing is served in the name of a cluster that the device does not know.
TEST_F(OsdTest, a_device_of_no_cluster_is_refused) {
  format(Uuid{});
  start();
  ASSERT_TRUE(sim.run_until([&] { return program().ended.has_value(); }, seconds(60)));
  ASSERT_FALSE(*program().ended);
  EXPECT_NE(program().ended->error().message().find("sarsen osd create"), std::string::npos);
}

// A device error is a value: what can be read is read on, and the operator is told.
TEST_F(OsdTest, a_device_that_fails_a_write_is_read_on_and_reported) {
  format();
  start();
  ASSERT_TRUE(await_service());
  ASSERT_TRUE(hello());
  ASSERT_TRUE(write_block(1));
  sim.set_rate(sim::FaultKind::d8_write_error, 1);
  const auto failed = write_block(2);
  ASSERT_FALSE(failed);
  EXPECT_TRUE(wire::is(failed.error(), wire::RemoteError::io_error)) << failed.error().message();
  sim.set_rate(sim::FaultKind::d8_write_error, 0);
  EXPECT_FALSE(write_block(3)) << "no more writes";
  const auto read = *sim::run_task(
      node, program().osd.service()->handle(
                context(), wire::ReadRequest{object(), {0, kBlockBytes}, attachment(), {}}));
  EXPECT_TRUE(read) << read.error().message();
  EXPECT_TRUE(sim.run_until([&] { return mon.last_report().read_only; }, seconds(5)));
  EXPECT_FALSE(program().ended);
  stop();
}

// Killed at any moment it starts again, with the epochs of its groups raised.
TEST_F(OsdTest, it_comes_back_after_a_kill) {
  format();
  start();
  ASSERT_TRUE(await_service());
  node.crash(sim::CrashKind::process_kill);
  start();
  ASSERT_TRUE(await_service());
  const auto answer = hello();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->epoch, PgEpoch(7));
  stop();
}

}  // namespace
}  // namespace sarsen
