// An ImageService over a real store on a simulated device, asked directly, without a network.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "dataplane/replica/image_service.h"
#include "dataplane/wire/codec.h"
#include "tests/sim/run_task.h"
#include "tests/sim/sim_disk.h"
#include "tests/unit/replica/replica_map.h"

namespace sarsen::test {

using Bytes = std::vector<std::byte>;

inline Bytes pattern(std::size_t count, std::size_t seed) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(1 + (i + seed) % 251);
  return bytes;
}

class ServiceFixture : public testing::Test {
 protected:
  // Dies after the coroutines of the node, as a process does.
  struct Osd final : sim::Program {
    explicit Osd(Executor& executor) : map(executor) {}
    FixedMap map;
    std::unique_ptr<Store> store;
    std::unique_ptr<ImageService> service;
  };

  ServiceFixture()
      : disk(sim.add_disk({.size_bytes = 16 * kMiB})), node(sim.add_node({.disks = {&disk}})) {
    node.set_factory(
        [](sim::SimNode& started) { return std::make_unique<Osd>(started.env().executor); });
    node.start();
    const FormatOptions options{.sizes = {.journal_bytes = 16 * 64 * kKiB,
                                          .segment_bytes = 64 * kKiB,
                                          .chunk_bytes = 64 * kKiB,
                                          .table_region_bytes = 128 * kKiB,
                                          .lane_count = 2}};
    SARSEN_ASSERT(run(Store::format(node.env(), node.disk(), node.blocking_disk(), options)),
                  "the device is formatted");
    open();
  }
  ~ServiceFixture() override {
    if (!node.up()) return;
    if (osd().service) run(osd().service->stop());
    if (osd().store) run(osd().store->stop());
    osd().service.reset();
    osd().store.reset();
  }

  Osd& osd() { return *static_cast<Osd*>(node.program()); }
  ImageService& service() { return *osd().service; }
  void open() {
    osd().map.set(content);
    auto opened = run(Store::open(node.env(), node.disk(), node.blocking_disk(), {}));
    SARSEN_ASSERT(opened, "the store opens");
    osd().store = *std::move(opened);
    osd().service = std::make_unique<ImageService>(
        node.env(), osd().map, *osd().store,
        OsdRun{.osd = kOsd, .incarnation = content.osds[kOsd].incarnation}, limits);
    sim.run_at(node.place(ShardId(0)), [this] { osd().service->start(); });
    hello();
  }
  // The OSD's process dies and starts again, as the mon would see it.
  void restart() {
    node.crash(sim::CrashKind::power_loss);
    node.start();
    ++content.osds[kOsd].incarnation;
    for (auto& group : content.pools[kPool].groups) group.epoch = group.epoch.next();
    content.epoch = content.epoch.next();
    open();
  }
  void publish() {
    content.epoch = content.epoch.next();
    sim.run_at(node.place(ShardId(0)), [this] { osd().map.set(content); });
  }
  template <typename T>
  T run(Task<T> task) {
    auto value = sim::run_task(node, std::move(task));
    SARSEN_ASSERT(value.has_value(), "the node did not crash");
    return *std::move(value);
  }
  void run(Task<void> task) { ASSERT_TRUE(sim::run_task(node, std::move(task))); }

  // Says hello to both groups.
  void hello() {
    for (const std::uint32_t group : {0u, 1u}) {
      const wire::PgHello request{
          .pg = {kPool, PgNumber(group), content.pools[kPool].groups[group].epoch},
          .image = kImage,
          .attachment = attachment(),
          .first_unacknowledged = wire::OperationId(next_operation)};
      const auto reply = run(service().handle(context(), request));
      SARSEN_ASSERT(reply, "the session is opened");
    }
  }
  wire::CallContext context() {
    wire::CallContext context;
    context.holder = kHolder;
    context.session = session;
    return context;
  }
  wire::Attachment attachment() { return {kHolder, AttachEpoch(3), session}; }
  wire::ObjectAddress object(std::uint64_t number) {
    const PgNumber group =
        placement_group(content.pools[kPool], content.images[kImage], ObjectNumber(number));
    return {{kPool, group, content.pools[kPool].groups[group.value].epoch},
            kImage,
            ObjectNumber(number)};
  }
  wire::Origin origin() {
    const wire::OperationId id(next_operation++);
    return {.attachment = attachment(),
            .operation = id,
            .first_unacknowledged = wire::OperationId(first_unacknowledged),
            .generation = {}};
  }
  wire::WriteRequest write_request(std::uint64_t number, std::uint32_t offset, const Bytes& data) {
    wire::WriteRequest request{.object = object(number),
                               .range = {offset, static_cast<std::uint32_t>(data.size())},
                               .origin = origin(),
                               .checksums = {}};
    wire::append_checksums(request.range, data, request.checksums);
    return request;
  }
  // A task, so that several can be run at once.
  Task<Result<wire::Changed>> send(wire::WriteRequest request, Bytes data) {
    auto buffer = node.env().buffers.allocate(data.size());
    if (!buffer) co_return fail(buffer.error());
    std::copy(data.begin(), data.end(), buffer->data());
    co_return co_await service().handle(context(), std::move(request), *std::move(buffer));
  }
  Result<wire::Changed> write(std::uint64_t number, std::uint32_t offset, const Bytes& data) {
    return run(send(write_request(number, offset, data), data));
  }
  Result<Bytes> read(std::uint64_t number, std::uint32_t offset, std::uint32_t length) {
    return run(fetch(number, {offset, length}));
  }
  // The bytes of the range; every sum is checked, as a client would.
  Task<Result<Bytes>> fetch(std::uint64_t number, wire::Range range) {
    const auto result = co_await service().handle(
        context(), wire::ReadRequest{object(number), range, attachment(), {}});
    if (!result) co_return fail(result.error());
    Bytes bytes(range.length);
    std::size_t from = 0;
    std::uint32_t at = 0;
    std::span<const std::uint32_t> sums = result->reply.checksums;
    for (const wire::Run& part : result->reply.runs) {
      if (part.present) {
        const wire::Range piece{range.offset + at, part.length};
        const auto data = result->data.span(from, part.length);
        EXPECT_TRUE(wire::matches(piece, data, sums.first(wire::checksum_count(piece))));
        sums = sums.subspan(wire::checksum_count(piece));
        std::copy(data.begin(), data.end(), bytes.begin() + at);
        from += part.length;
      }
      at += part.length;
    }
    EXPECT_TRUE(wire::answers(result->reply, range, from));
    co_return bytes;
  }
  std::vector<wire::Run> status(std::uint64_t number, std::uint32_t offset, std::uint32_t length) {
    const auto reply = run(service().handle(
        context(), wire::StatusRequest{object(number), {offset, length}, attachment(), {}, 1024}));
    SARSEN_ASSERT(reply, "status is answered");
    return reply->runs;
  }

  sim::Simulator sim{{.seed = 1}};
  sim::SimDisk& disk;
  sim::SimNode& node;
  ClusterMap content = replica_map();
  ImageServiceLimits limits;
  wire::SessionId session{1};
  std::uint64_t next_operation = 1;
  std::uint64_t first_unacknowledged = 1;
};

}  // namespace sarsen::test
