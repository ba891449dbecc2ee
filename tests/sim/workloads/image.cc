#include "tests/sim/workloads/image.h"

#include <optional>
#include <utility>

#include "dataplane/osd/osd.h"
#include "tests/sim/nemesis.h"
#include "tests/sim/run_task.h"
#include "tests/sim/sim_disk.h"
#include "tests/sim/workloads/flaky_links.h"
#include "tests/sim/workloads/image_client.h"
#include "tests/sim/workloads/image_judge.h"
#include "tests/sim/workloads/mon_stand_in.h"

namespace sarsen::sim {
namespace {

using enum FaultKind;

constexpr std::uint64_t kDeviceBytes = 12 * kMiB;
constexpr OsdId kSimOsd{7};
constexpr PoolId kSimPool{1};
constexpr Uuid kSimCluster{std::byte{9}};
constexpr std::uint64_t kFullSize = kImageObjects * std::uint64_t{kObjectBytes};

// Without the OSD, which adds itself when it boots.
ClusterMap first_map() {
  ClusterMap map;
  map.epoch = MapEpoch(1);
  map.cluster[0] = 9;
  map.osds[kSimOsd] = {.id = kSimOsd, .node = "osd"};
  map.pools[kSimPool] = {
      .id = kSimPool, .name = "p", .group_bits = 1, .groups = {PgConfiguration(), {}}};
  map.images[kSimImage] = {.id = kSimImage,
                           .name = "disk",
                           .pool = kSimPool,
                           .size_bytes = kFullSize,
                           .family = 1,
                           .placement_seed = 1};
  return map;
}

struct DeviceState {
  FormatOptions format;
  OsdLimits limits;
  bool formatted = false;
};

// The OSD's node.
class OsdProgram final : public Program {
 public:
  OsdProgram(SimNode& node, MonStandIn& mon, DeviceState& device)
      : node_(node),
        device_(device),
        map_(node.env().executor),
        osd_(node.env(), node.disk(), node.blocking_disk(), map_, mon,
             {.listen = "tcp:osd:1", .advertised = {}, .node = "osd"}, device.limits, {}),
        scope_(node.env().executor) {
    mon.follow(node, map_);
    scope_.spawn(run());
  }
  Osd& osd() { return osd_; }

 private:
  Task<void> run() {
    if (!device_.formatted) {
      const auto formatted =
          co_await Store::format(node_.env(), node_.disk(), node_.blocking_disk(), device_.format);
      device_.formatted = formatted.has_value();
    }
    if (device_.formatted) (void)co_await osd_.run({});
    // It could not start, or go on: the process ends and is started again.
    if (!node_.doomed()) node_.crash(CrashKind::process_kill);
  }

  SimNode& node_;
  DeviceState& device_;
  FixedMap map_;
  Osd osd_;
  Scope scope_;
};

class ImageWorkload final : public Workload {
 public:
  explicit ImageWorkload(WorkloadContext context)
      : simulator_(context.simulator),
        rng_(simulator_.split_rng()),
        several_writers_(rng_.chance(0.4)),
        disk_(simulator_.add_disk({.size_bytes = kDeviceBytes})),
        osd_node_(simulator_.add_node({.disks = {&disk_}})),
        client_nodes_{&simulator_.add_node({}), &simulator_.add_node({})},
        mon_(simulator_, first_map()),
        clients_(simulator_),
        nemesis_(simulator_,
                 {.tick = milliseconds(40),
                  .down_max = milliseconds(60),
                  .pause_max = milliseconds(800),
                  .may_strike = [this](const SimNode& node) { return may_strike(node); }}) {
    clients_.operations_wanted = context.operations;
    spare_osd();
    draw_limits();
    simulator_.network().set_policy(std::make_unique<FlakyLinks>(simulator_));
    osd_node_.set_factory(
        [this](SimNode& node) { return std::make_unique<OsdProgram>(node, mon_, device_); });
    for (std::uint64_t i = 0; i < kImageClients; ++i) {
      client_nodes_[i]->set_factory([this, i](SimNode& node) {
        clients_.judge.client_crashed(i);
        return std::make_unique<ImageClient>(node, mon_, clients_, i);
      });
    }
  }

  void run() override {
    simulator_.set_faults_on(false);
    osd_node_.start();
    if (!await([this] { return served(); }, "the OSD does not start")) return;
    for (SimNode* node : client_nodes_) node->start();
    for (std::uint64_t i = 0; i < (several_writers_ ? kImageClients : 1); ++i) attach(i);
    simulator_.set_faults_on(true);
    nemesis_.start();
    while (!clients_.finished() && !simulator_.failed()) {
      const std::uint64_t until = clients_.operations_done + rng_.between(50, 400);
      if (!await([&] { return clients_.operations_done >= until || clients_.finished(); },
                 "operations do not complete")) {
        break;
      }
      if (!clients_.finished()) change_something();
    }
    finish();
  }
  std::uint64_t operations_done() const override { return clients_.operations_done; }

 private:
  // Retries of changes that were done are not remembered over a restart of the OSD yet: with two
  // writers that would be seen (dataplane/docs/replication.md).
  bool may_strike(const SimNode& node) const { return !several_writers_ || &node != &osd_node_; }
  void spare_osd() {
    // It also strikes within the I/O of a node that has disks.
    if (several_writers_) simulator_.set_rate(p3_power_loss, 0);
  }

  void draw_limits() {
    device_.format = {.cluster = kSimCluster,
                      .osd_id = kSimOsd.value,
                      .sizes = {.journal_bytes = rng_.between(6, 12) * 64 * kKiB,
                                .segment_bytes = 64 * kKiB,
                                .chunk_bytes = 64 * kKiB,
                                .table_region_bytes = 128 * kKiB,
                                .lane_count = static_cast<std::uint32_t>(rng_.between(1, 3))}};
    device_.limits.store.metadata_cache_bytes = 0;  // see the store workload
    device_.limits.store.leaf_cache_bytes = rng_.chance(0.5) ? 4 * kKiB : 1 * kMiB;
    device_.limits.service.map_wait_max =
        milliseconds(static_cast<std::int64_t>(rng_.between(1, 2000)));
    device_.limits.service.window_max = rng_.chance(0.3) ? 4 : 1024;
    device_.limits.service.purge = {.objects_at_once = 2,
                                    .page_objects = static_cast<std::uint32_t>(rng_.between(1, 4)),
                                    .retry_delay = milliseconds(500)};
    device_.limits.report_interval = milliseconds(500);
    clients_.call_max = milliseconds(static_cast<std::int64_t>(rng_.between(100, 3000)));
    mon_.set_delay_max(milliseconds(static_cast<std::int64_t>(rng_.between(1, 2000))));
  }

  bool await(const std::function<bool()>& done, const char* else_what) {
    const bool came = simulator_.run_until(done, seconds(10'000));
    if (!came && !simulator_.failed()) simulator_.fail(else_what);
    return came;
  }
  bool served() {
    auto* program = static_cast<OsdProgram*>(osd_node_.program());
    return program != nullptr && program->osd().service() != nullptr;
  }

  void attach(std::uint64_t client) {
    const AttachMode mode = several_writers_ ? AttachMode::multi_writer : AttachMode::single_writer;
    clients_.given[client] = std::make_shared<GivenAttachment>(
        GivenAttachment{.epoch = mon_.attach(kSimImage, holder_of(client), mode)});
  }
  // The client is not asked, and may learn of it late. False when it is never answered.
  bool detach(std::uint64_t client) {
    const MapEpoch without = mon_.detach(kSimImage, holder_of(client));
    simulator_.count(p14_forced_detach);
    if (!await([&] { return mon_.acted_on(without); }, "a detach is not answered")) return false;
    clients_.judge.detach_answered(client, *clients_.given[client]);
    return true;
  }

  void change_something() {
    const std::uint64_t choice = rng_.below(10);
    if (choice < 2) {
      mon_.set_reachable(false);
      simulator_.call_after(milliseconds(static_cast<std::int64_t>(rng_.below(3000))),
                            [this] { mon_.set_reachable(true); });
      return;
    }
    const std::uint64_t client = several_writers_ ? rng_.below(kImageClients) : holder_;
    if (!detach(client)) return;
    if (!several_writers_) {
      if (choice < 6 && !cut_and_grow()) return;
      if (rng_.chance(0.7)) holder_ = 1 - holder_;
    }
    attach(several_writers_ ? client : holder_);
  }

  // Smaller, given back, and large again: what was cut off must read as zeros. Nobody has it.
  bool cut_and_grow() {
    const std::uint32_t kept = static_cast<std::uint32_t>(rng_.below(kImageWindow));
    const std::uint64_t size =
        kObjectBytes + (kImageWindowStart + kept) * std::uint64_t{kBlockBytes};
    const BlockIndex first(kImageWindow + kept);
    const model::WriteId cut = clients_.judge.begin_cut(first, kImageBlocks - first.value);
    mon_.change([&](ClusterMap& map) {
      ImageEntry& image = map.images.at(kSimImage);
      image.size_bytes = size;
      image.purging = true;
      image.purge_from_bytes = size;
      ++image.purge_generation;
      image.purged.clear();
    });
    if (!await([this] { return mon_.purged(kSimImage); }, "a purge does not end")) return false;
    clients_.judge.end_cut(cut);
    mon_.change([&](ClusterMap& map) {
      ImageEntry& image = map.images.at(kSimImage);
      image.size_bytes = kFullSize;
      image.purging = false;
      image.purged.clear();
    });
    return true;
  }

  // Without new faults everything must come back, and be what it must be.
  void finish() {
    nemesis_.stop();
    simulator_.set_faults_on(false);
    mon_.set_reachable(true);
    if (simulator_.failed()) return end();
    await([this] { return nemesis_.quiet(); }, "a node does not come back");
    for (SimNode* node : client_nodes_) node->crash(CrashKind::process_kill);
    osd_node_.crash(CrashKind::power_loss);
    const std::uint64_t verified = clients_.verified;
    clients_.operations_wanted += 200;
    if (!await([&] { return clients_.verified > verified && clients_.finished() && served(); },
               "with faults off, the image does not come back")) {
      return end();
    }
    check_store();
    end();
  }
  void check_store() {
    auto& osd = static_cast<OsdProgram*>(osd_node_.program())->osd();
    const auto account = run_task(osd_node_, osd.store()->audit());
    if (account && !*account) simulator_.fail("audit: " + account->error().message());
    const auto scrubbed = run_task(osd_node_, osd.store()->scrub());
    if (scrubbed && (!*scrubbed || (*scrubbed)->corrupt_found > 0)) {
      simulator_.fail("scrub found what no device has done");
    }
  }
  void end() {
    for (const auto& node : simulator_.nodes()) {
      if (node->up()) node->crash(CrashKind::process_kill);
    }
  }

  Simulator& simulator_;
  Rng rng_;
  const bool several_writers_;
  SimDisk& disk_;
  SimNode& osd_node_;
  std::array<SimNode*, kImageClients> client_nodes_;
  MonStandIn mon_;
  DeviceState device_;
  ImageClients clients_;
  Nemesis nemesis_;
  std::uint64_t holder_ = 0;
};

}  // namespace

FaultProfile image_profile() {
  return {d1_latency,    d2_reorder,           d3_drop_unflushed,  d4_torn_write,       d5_garbage,
          n1_delay,      n7_partition,         n8_reset_mid_frame, n10_byte_flip,       p1_crash,
          p3_power_loss, p4_power_loss_of_all, p5_pause,           p6_crash_in_recovery};
}

std::unique_ptr<Workload> make_image(WorkloadContext context) {
  return std::make_unique<ImageWorkload>(context);
}

}  // namespace sarsen::sim
