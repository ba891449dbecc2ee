#include "dataplane/cli/cluster_commands.h"

#include <fmt/format.h>

#include "dataplane/membership/rpc/mon_client.h"
#include "dataplane/mon/machine/health.h"
#include "dataplane/mon/machine/map_machine.h"
#include "dataplane/mon/store/rocksdb_map_store.h"
#include "dataplane/runtime/uring/os_random.h"

namespace sarsen {
namespace {

std::string cluster_name(const wire::ClusterId& cluster) {
  Uuid uuid{};
  for (std::size_t i = 0; i < uuid.size(); ++i) uuid[i] = std::byte{cluster[i]};
  return to_string(uuid);
}

wire::ClusterId new_cluster_id(Random& random) {
  const Uuid uuid = make_uuid(random);
  wire::ClusterId cluster{};
  for (std::size_t i = 0; i < uuid.size(); ++i) cluster[i] = std::to_integer<std::uint8_t>(uuid[i]);
  return cluster;
}

Json checks_report(const ClusterStatus& status) {
  Json checks = Json::array();
  for (const HealthCheck& check : status.checks) {
    checks.push_back(
        {{"severity", name_of(check.severity)}, {"check", check.id}, {"summary", check.summary}});
  }
  return checks;
}

struct Space {
  std::uint64_t total_bytes = 0;
  std::uint64_t used_bytes = 0;
};

Space space_of(const ClusterStatus& status) {
  Space space;
  for (const OsdStatus& osd : status.osds) {
    space.total_bytes += osd.space.total_blocks * kBlockBytes;
    space.used_bytes += used_blocks(osd.space) * kBlockBytes;
  }
  return space;
}

Json pools_report(const ClusterStatus& status) {
  Json pools = Json::array();
  for (const PoolStatus& pool : status.pools) {
    pools.push_back({{"pool", pool.name},
                     {"copies", pool.copies},
                     {"groups", pool.groups},
                     {"groups_active", pool.groups_active},
                     {"images", pool.images},
                     {"provisioned_bytes", pool.provisioned_bytes}});
  }
  return pools;
}

// As `ceph -s` tells it.
std::string status_text(const ClusterStatus& status) {
  std::string text = fmt::format("  cluster:\n    id:     {}\n    health: {}\n",
                                 cluster_name(status.cluster), name_of(status.health));
  for (const HealthCheck& check : status.checks) {
    text += fmt::format("            {}: {}\n", check.id, check.summary);
  }
  std::size_t up = 0;
  for (const OsdStatus& osd : status.osds) up += osd.osd.up ? 1 : 0;
  text += fmt::format("\n  services:\n    mon: 1, map epoch {}\n    osd: {} osds: {} up\n",
                      status.epoch.value, status.osds.size(), up);
  text += "\n  data:\n";
  for (const PoolStatus& pool : status.pools) {
    text += fmt::format("    pool {}: {} pgs, {} active; copies {}; {} images, {} provisioned\n",
                        pool.name, pool.groups, pool.groups_active, pool.copies, pool.images,
                        describe_bytes(pool.provisioned_bytes));
  }
  const Space space = space_of(status);
  text += fmt::format("    usage: {} used of {}\n    attachments: {}\n",
                      describe_bytes(space.used_bytes), describe_bytes(space.total_bytes),
                      status.attachments);
  return text;
}

Json status_report(const ClusterStatus& status) {
  Json osds = Json::array();
  for (const OsdStatus& osd : status.osds) {
    osds.push_back({{"id", osd.osd.id.value}, {"up", osd.osd.up}, {"groups_led", osd.groups_led}});
  }
  const Space space = space_of(status);
  return {
      {"cluster", cluster_name(status.cluster)}, {"store_incarnation", status.store_incarnation},
      {"map_epoch", status.epoch.value},         {"health", name_of(status.health)},
      {"checks", checks_report(status)},         {"osds", osds},
      {"pools", pools_report(status)},           {"bytes_total", space.total_bytes},
      {"bytes_used", space.used_bytes},          {"attachments", status.attachments}};
}

Result<ClusterStatus> ask(const StatusOptions& options) {
  auto client = MonClient::create({.mon = options.mon});
  if (!client) return fail(std::move(client).error());
  return (*client)->status();
}

}  // namespace

ExitCode run_cluster_create(const ClusterCreateOptions& options) {
  OsRandom random;
  const ClusterOptions cluster{.cluster = new_cluster_id(random),
                               .store_incarnation = random.next(),
                               .pool = options.pool,
                               .group_bits = options.group_bits};
  auto state = create_cluster(cluster);
  if (!state) return print_failure(ExitCode::could_not, state.error().message(), options.format);
  if (auto made = RocksdbMapStore::create(options.data, *state); !made) {
    const bool refused = is(made.error(), MapStoreError::exists);
    return print_failure(refused ? ExitCode::problems : ExitCode::could_not, made.error().message(),
                         options.format);
  }
  print_report({{"cluster", cluster_name(cluster.cluster)},
                {"data", options.data},
                {"pool", options.pool},
                {"placement_groups", std::uint64_t{1} << options.group_bits},
                {"next", "sarsen-mon --data " + options.data}},
               options.format);
  return ExitCode::ok;
}

ExitCode run_status(const StatusOptions& options) {
  const auto status = ask(options);
  if (!status) return print_failure(ExitCode::could_not, status.error().message(), options.format);
  if (options.format == OutputFormat::text) {
    std::fputs(status_text(*status).c_str(), stdout);
  } else {
    print_report(status_report(*status), options.format);
  }
  return ExitCode::ok;
}

ExitCode run_health(const StatusOptions& options) {
  const auto status = ask(options);
  if (!status) return print_failure(ExitCode::could_not, status.error().message(), options.format);
  if (options.format == OutputFormat::text) {
    std::printf("%s\n", name_of(status->health));
    for (const HealthCheck& check : status->checks) {
      std::printf("%s %s: %s\n", name_of(check.severity), check.id.c_str(), check.summary.c_str());
      for (const std::string& detail : check.details) std::printf("    %s\n", detail.c_str());
    }
  } else {
    Json checks = checks_report(*status);
    for (std::size_t i = 0; i < checks.size(); ++i)
      checks[i]["details"] = status->checks[i].details;
    print_report({{"health", name_of(status->health)}, {"checks", checks}}, options.format);
  }
  return status->health == Health::ok ? ExitCode::ok : ExitCode::problems;
}

}  // namespace sarsen
