#include <map>
#include <memory>

#include "dataplane/cli/device_commands.h"
#include "dataplane/cli/format_options.h"
#include "dataplane/cli/verbs.h"

namespace sarsen {
namespace {

void add_format(CLI::App& device, Verb& verb) {
  const auto options = std::make_shared<FormatOptionsOfCommand>();
  CLI::App* format = device.add_subcommand(
      "format",
      "Makes an empty device a Sarsen store. Refuses whatever is used by somebody, carries a "
      "signature of somebody else, or holds data; no option overrides that. An existing Sarsen "
      "store is destroyed only when its id is typed.");
  add_format_options(*format, *options);
  format->add_option("--osd-id", options->store.osd_id, "Number of the OSD (default 0)");
  add_output(*format, options->format);
  format->footer(
      footer("  sarsen device format /dev/nvme1n1 --dry-run\n"
             "  sarsen device format /dev/nvme1n1\n"
             "  sarsen device format /var/lib/sarsen/osd0.img --create --size 10G\n"
             "  sarsen device format /dev/nvme1n1 --destroy --confirm "
             "2f1c7d3e-5b0a-4c9d-8e6f-0123456789ab"));
  format->callback([&verb, options] { verb = [options] { return run_device_format(*options); }; });
}

void add_inspect(CLI::App& device, Verb& verb) {
  const auto options = std::make_shared<InspectOptions>();
  static const std::map<std::string, InspectPart> kParts{
      {"superblock", InspectPart::superblock}, {"journal", InspectPart::journal},
      {"table", InspectPart::table},           {"index", InspectPart::index},
      {"allocator", InspectPart::allocator},   {"all", InspectPart::all}};
  CLI::App* inspect = device.add_subcommand(
      "inspect",
      "Shows what is on a device: superblocks, journal segments, device table, index, free space, "
      "the extents of an object. Only reads, also of a damaged device or of one in use.");
  inspect->add_option("PATH", options->path, "A block device or a file")->required();
  inspect
      ->add_option("PART", options->part,
                   "superblock, journal, table, index, allocator or all (default)")
      ->transform(CLI::CheckedTransformer(kParts, CLI::ignore_case).description(""))
      ->type_name("PART");
  inspect
      ->add_option("--object", options->object,
                   "Also the extents of this object, and its records in the journal")
      ->type_name("POOL/FAMILY/BRANCH/NUMBER");
  add_output(*inspect, options->format);
  inspect->footer(
      footer("  sarsen device inspect /dev/nvme1n1\n"
             "  sarsen device inspect osd0.img journal -o json\n"
             "  sarsen device inspect osd0.img index --object 1/7/0/42"));
  inspect->callback(
      [&verb, options] { verb = [options] { return run_device_inspect(*options); }; });
}

void add_fsck(CLI::App& device, Verb& verb) {
  const auto options = std::make_shared<FsckOptions>();
  CLI::App* fsck = device.add_subcommand(
      "fsck",
      "Checks a store that no daemon has open: replays its journal in memory, balances its space, "
      "verifies the checksum of every block. Changes nothing on the device.");
  fsck->add_option("PATH", options->path, "A block device or a file")->required();
  add_output(*fsck, options->format);
  fsck->footer(
      footer("  sarsen device fsck /dev/nvme1n1\n"
             "  sarsen device fsck osd0.img -o json | jq .problems"));
  fsck->callback([&verb, options] { verb = [options] { return run_device_fsck(*options); }; });
}

}  // namespace

void add_device_verbs(CommandLine& line) {
  CLI::App* device = line.app.add_subcommand("device", "Devices that hold a store, offline");
  device->require_subcommand(1);
  add_format(*device, line.verb);
  add_inspect(*device, line.verb);
  add_fsck(*device, line.verb);
}

}  // namespace sarsen
