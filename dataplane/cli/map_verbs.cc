// The verbs of `sarsen image` that make block devices of images on this node: they ask its blockd,
// and `fail` its keeper too, because it must work when blockd does not.
#include <map>
#include <memory>

#include "dataplane/blockd/control/control_client.h"
#include "dataplane/cli/verbs.h"
#include "dataplane/keeper/client.h"

namespace sarsen {
namespace {

using blockd::ControlClient;
using blockd::ControlError;
using blockd::DeviceReport;
using keeper::KeeperError;

constexpr const char* kDefaultPool = "rbd";
constexpr const char* kDefaultControl = "/run/sarsen/blockd.sock";
constexpr const char* kDefaultKeeper = "/run/sarsen/keeper.sock";
// After the keeper has failed the device, blockd is only told to show it.
constexpr int kFailTellSeconds = 5;

struct LocalOptions {
  std::string image;
  std::string control = kDefaultControl;
  std::string keeper = kDefaultKeeper;
  OutputFormat format = OutputFormat::text;

  std::string full_name() const {
    return image.find('/') == std::string::npos ? std::string(kDefaultPool) + "/" + image : image;
  }
};

struct MapVerbOptions : LocalOptions {
  std::string frontend = "loop";
  std::uint32_t sector_bytes = 4096;
  bool read_only = false;
};

struct UnmapVerbOptions : LocalOptions {
  bool force = false;
};

void add_image(CLI::App& verb, LocalOptions& options) {
  verb.add_option("IMAGE", options.image, "POOL/IMAGE, or IMAGE of pool rbd")
      ->required()
      ->type_name("[POOL/]IMAGE");
}

void add_blockd(CLI::App& verb, LocalOptions& options) {
  verb.add_option("--blockd", options.control, "Socket of this node's sarsen-blockd")
      ->envname("SARSEN_BLOCKD")
      ->type_name("PATH")
      ->capture_default_str();
  add_output(verb, options.format);
}

Json described(const DeviceReport& device) {
  return Json{{"image", device.image},
              {"frontend", device.nbd ? "nbd" : "loop"},
              {"device", device.device},
              {"state", device.state},
              {"detail", device.detail},
              {"size_bytes", device.size_bytes},
              {"sector_bytes", device.sector_bytes},
              {"read_only", device.read_only},
              {"image_id", device.image_id},
              {"holder", device.holder},
              {"attach_epoch", device.attach_epoch},
              {"nbd_connections", device.nbd_connections},
              {"requests_waiting", device.requests_waiting},
              {"reads", device.reads},
              {"writes", device.writes},
              {"bytes_read", device.bytes_read},
              {"bytes_written", device.bytes_written},
              {"resent", device.resent}};
}

Json row(const DeviceReport& device) {
  return Json{{"image", device.image},
              {"device", device.device},
              {"state", device.state},
              {"size", describe_bytes(device.size_bytes)},
              {"sector", device.sector_bytes},
              {"mode", device.read_only ? "read-only" : "read-write"},
              {"waiting", device.requests_waiting},
              {"detail", device.detail}};
}

// blockd's own sentence, when it answered one.
std::string sentence_of(const Error& error) {
  const bool answered = !is(error, ControlError::unreachable) && !error.detail().empty();
  return answered ? std::string(error.detail()) : error.message();
}

ExitCode code_of(const Error& error) {
  const bool refused = is(error, ControlError::refused) || is(error, ControlError::not_found);
  return refused ? ExitCode::problems : ExitCode::could_not;
}

ExitCode run_map(const MapVerbOptions& options) {
  const auto device = ControlClient(options.control)
                          .map({options.full_name(), options.frontend == "nbd",
                                options.sector_bytes, options.read_only});
  if (!device) {
    return print_failure(code_of(device.error()), sentence_of(device.error()), options.format);
  }
  if (options.format == OutputFormat::json) {
    print_report(described(*device), options.format);
  } else {
    std::printf("%s\n", device->device.c_str());
  }
  return ExitCode::ok;
}

ExitCode run_unmap(const UnmapVerbOptions& options) {
  const auto done = ControlClient(options.control).unmap(options.full_name(), options.force);
  if (!done) return print_failure(code_of(done.error()), sentence_of(done.error()), options.format);
  if (options.format == OutputFormat::json) {
    print_report(Json{{"image", options.full_name()}, {"unmapped", true}}, options.format);
  }
  return ExitCode::ok;
}

ExitCode run_mapped(const LocalOptions& options) {
  const auto devices = ControlClient(options.control).list();
  if (!devices) {
    return print_failure(code_of(devices.error()), sentence_of(devices.error()), options.format);
  }
  Json report = Json::array();
  for (const DeviceReport& device : *devices) {
    report.push_back(options.format == OutputFormat::json ? described(device) : row(device));
  }
  if (report.empty() && options.format == OutputFormat::text) {
    std::printf("nothing is mapped on this node\n");
  } else {
    print_report(report, options.format);
  }
  return ExitCode::ok;
}

Result<void> fail_at_keeper(const LocalOptions& options) {
  auto client = keeper::Client::connect(options.keeper);
  if (!client) return fail(client.error());
  return client->fail(options.full_name());
}

ExitCode run_fail(const LocalOptions& options) {
  const std::string image = options.full_name();
  const auto kept = fail_at_keeper(options);
  const auto told = ControlClient(options.control).fail(image, kFailTellSeconds);
  if (!kept && !told) {
    return print_failure(
        is(told.error(), ControlError::not_found) ? ExitCode::problems : ExitCode::could_not,
        image + ": " + kept.error().message() + "; " + sentence_of(told.error()), options.format);
  }
  if (options.format == OutputFormat::json) {
    print_report(Json{{"image", image}, {"failed", true}, {"blockd_told", told.has_value()}},
                 options.format);
  } else {
    std::printf("%s answers errors from now on; unmount it, then: sarsen image unmap %s\n",
                image.c_str(), image.c_str());
  }
  return ExitCode::ok;
}

void add_map(CLI::App& image, Verb& verb) {
  const auto options = std::make_shared<MapVerbOptions>();
  CLI::App* map = image.add_subcommand("map",
                                       "Attaches an image to this node, makes a block device of "
                                       "it, and prints the device. Mapped in "
                                       "the same way already: prints the device that is there.");
  add_image(*map, *options);
  map->add_option("--frontend", options->frontend,
                  "loop (default): /dev/loopN; nbd: an export for virtual machines and NBD clients")
      ->check(CLI::IsMember({"loop", "nbd"}).description(""))
      ->type_name("FRONTEND");
  map->add_option("--sector", options->sector_bytes, "Bytes of a sector: 4096 (default) or 512")
      ->check(CLI::IsMember({512, 4096}).description(""))
      ->type_name("BYTES");
  map->add_flag("--read-only", options->read_only, "Other nodes may have it read-only too");
  add_blockd(*map, *options);
  map->footer(
      footer("  sarsen image map db\n"
             "  mkfs.ext4 $(sarsen image map rbd/db)\n"
             "  sarsen image map vm --frontend nbd     prints nbd+unix:///rbd/vm?socket=…\n"
             "  sarsen image map old --sector 512 --read-only"));
  map->callback([&verb, options] { verb = [options] { return run_map(*options); }; });
}

void add_unmap(CLI::App& image, Verb& verb) {
  const auto options = std::make_shared<UnmapVerbOptions>();
  CLI::App* unmap = image.add_subcommand(
      "unmap",
      "Ends the device of an image on this node, and its attachment. Refuses while it is in use.");
  add_image(*unmap, *options);
  unmap->add_flag("--force", options->force,
                  "Makes the device answer errors first: what was not written yet is lost");
  add_blockd(*unmap, *options);
  unmap->footer(
      footer("  umount /mnt && sarsen image unmap db\n"
             "  sarsen image unmap db --force"));
  unmap->callback([&verb, options] { verb = [options] { return run_unmap(*options); }; });
}

void add_mapped(CLI::App& image, Verb& verb) {
  const auto options = std::make_shared<LocalOptions>();
  CLI::App* mapped = image.add_subcommand(
      "mapped",
      "Shows what is mapped on this node. States: serving; starting, I/O waits for the cluster; "
      "fenced, the attachment was revoked; failed, by command; detaching, the mon is still to be "
      "told.");
  add_blockd(*mapped, *options);
  mapped->footer(
      footer("  sarsen image mapped\n"
             "  sarsen image mapped -o json | jq '.[] | {image, device, state}'"));
  mapped->callback([&verb, options] { verb = [options] { return run_mapped(*options); }; });
}

void add_fail(CLI::App& image, Verb& verb) {
  const auto options = std::make_shared<LocalOptions>();
  CLI::App* fail = image.add_subcommand(
      "fail",
      "Makes the device of an image on this node answer errors from now on, whether or not blockd "
      "runs: for a device that cannot be unmounted because nobody serves it any more. What was not "
      "written yet is lost. It cannot be undone; unmap the image and map it again.");
  add_image(*fail, *options);
  fail->add_option("--keeper", options->keeper, "Socket of this node's sarsen-keeper")
      ->envname("SARSEN_KEEPER")
      ->type_name("PATH")
      ->capture_default_str();
  add_blockd(*fail, *options);
  fail->footer(footer("  sarsen image fail db && umount /mnt && sarsen image unmap db"));
  fail->callback([&verb, options] { verb = [options] { return run_fail(*options); }; });
}

}  // namespace

void add_map_verbs(CommandLine& line) {
  CLI::App& image = image_noun(line);
  add_map(image, line.verb);
  add_unmap(image, line.verb);
  add_mapped(image, line.verb);
  add_fail(image, line.verb);
}

}  // namespace sarsen
