#include "dataplane/cli/osd_commands.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <unistd.h>

#include "dataplane/membership/rpc/mon_client.h"
#include "dataplane/mon/machine/health.h"
#include "dataplane/runtime/uring/os_random.h"

namespace sarsen {
namespace {

std::string name_of_this_machine() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

Json osd_row(const OsdStatus& status, OutputFormat format) {
  const std::uint64_t total = status.space.total_blocks * kBlockBytes;
  const std::uint64_t used = used_blocks(status.space) * kBlockBytes;
  Json row{{"osd", status.osd.id.value},
           {"node", status.osd.node},
           {"up", status.osd.up},
           {"address", status.osd.address},
           {"groups_led", status.groups_led},
           {"boots", status.osd.incarnation}};
  if (format == OutputFormat::text) {
    row["used"] = status.reported ? describe_bytes(used) : "-";
    row["size"] = status.reported ? describe_bytes(total) : "-";
    return row;
  }
  row["device_id"] = to_string(status.osd.device);
  row["reported"] = status.reported;
  row["bytes_used"] = used;
  row["bytes_total"] = total;
  row["map_epoch"] = status.map_epoch.value;
  row["read_only"] = status.read_only;
  row["corrupt_blocks_found"] = status.corrupt_blocks_found;
  return row;
}

}  // namespace

ExitCode run_osd_create(OsdCreateOptions options) {
  auto client = MonClient::create({.mon = options.mon});
  if (!client) {
    return print_failure(ExitCode::could_not, client.error().message(), options.device.format);
  }
  MonApi& mon = **client;
  if (options.node.empty()) options.node = name_of_this_machine();
  OsRandom random;
  const Uuid device = make_uuid(random);
  std::optional<OsdId> created;
  options.device.before_writing = [&](FormatOptions& store) -> Result<void> {
    const auto osd = mon.create_osd(device, options.node);
    if (!osd) return fail(osd.error());
    created = osd->osd;
    store.device = device;
    store.osd_id = osd->osd.value;
    std::ranges::transform(osd->cluster, store.cluster.begin(),
                           [](std::uint8_t byte) { return std::byte{byte}; });
    return {};
  };
  const ExitCode code = run_device_format(options.device);
  if (code == ExitCode::ok || !created) return code;
  if (auto forgotten = mon.forget_osd(*created, device); !forgotten) {
    std::fprintf(
        stderr,
        "sarsen: osd.%u has an id and no device (%s); take it back with: sarsen osd forget %u\n",
        created->value, forgotten.error().message().c_str(), created->value);
  }
  return code;
}

ExitCode run_osd_list(const OsdOptions& options) {
  const auto client = MonClient::create({.mon = options.mon});
  if (!client) return print_failure(ExitCode::could_not, client.error().message(), options.format);
  const auto status = (*client)->status();
  if (!status) return print_failure(ExitCode::could_not, status.error().message(), options.format);
  Json rows = Json::array();
  for (const OsdStatus& osd : status->osds) rows.push_back(osd_row(osd, options.format));
  print_report(rows, options.format);
  return ExitCode::ok;
}

ExitCode run_osd_forget(const OsdOptions& options) {
  const auto client = MonClient::create({.mon = options.mon});
  if (!client) return print_failure(ExitCode::could_not, client.error().message(), options.format);
  const auto status = (*client)->status();
  if (!status) return print_failure(ExitCode::could_not, status.error().message(), options.format);
  const auto osd = std::ranges::find_if(
      status->osds, [&](const OsdStatus& entry) { return entry.osd.id.value == options.osd; });
  if (osd == status->osds.end()) {
    return print_failure(ExitCode::problems, fmt::format("there is no osd.{}", options.osd),
                         options.format);
  }
  if (auto done = (*client)->forget_osd(osd->osd.id, osd->osd.device); !done) {
    return print_failure(done.error().retryable() ? ExitCode::could_not : ExitCode::problems,
                         done.error().message(), options.format);
  }
  print_report({{"osd", options.osd}, {"forgotten", true}}, options.format);
  return ExitCode::ok;
}

}  // namespace sarsen
