#include <memory>

#include "dataplane/cli/format_options.h"
#include "dataplane/cli/osd_commands.h"
#include "dataplane/cli/verbs.h"

namespace sarsen {
namespace {

void add_create(CLI::App& osd, Verb& verb) {
  const auto options = std::make_shared<OsdCreateOptions>();
  CLI::App* create = osd.add_subcommand(
      "create",
      "Makes a device an OSD of the cluster: asks the mon for a number, and formats the device as "
      "'sarsen device format' does, with the same refusals. Then sarsen-osd can be started on it.");
  add_format_options(*create, options->device);
  create->add_option("--node", options->node, "Name of the machine (default: this one's)");
  add_mon(*create, options->mon);
  add_output(*create, options->device.format);
  create->footer(
      footer("  sarsen osd create /dev/nvme1n1\n"
             "  sarsen osd create /var/lib/sarsen/osd0.img --create --size 10G"));
  create->callback([&verb, options] { verb = [options] { return run_osd_create(*options); }; });
}

CLI::App& add_verb(CLI::App& osd, const std::shared_ptr<OsdOptions>& options, Verb& verb,
                   const char* name, const char* what, ExitCode (*run)(const OsdOptions&),
                   const char* examples) {
  CLI::App* added = osd.add_subcommand(name, what);
  add_mon(*added, options->mon);
  add_output(*added, options->format);
  added->footer(footer(examples));
  added->callback([&verb, options, run] { verb = [options, run] { return run(*options); }; });
  return *added;
}

}  // namespace

void add_osd_verbs(CommandLine& line) {
  CLI::App* osd = line.app.add_subcommand("osd", "OSDs: devices that hold data of the cluster");
  osd->require_subcommand(1);
  add_create(*osd, line.verb);
  add_verb(*osd, std::make_shared<OsdOptions>(), line.verb, "ls", "Every OSD, and how it is",
           run_osd_list,
           "  sarsen osd ls\n"
           "  sarsen osd ls -o json | jq '.[] | select(.up | not)'");
  const auto options = std::make_shared<OsdOptions>();
  add_verb(*osd, options, line.verb, "forget",
           "Takes back the number of an OSD that has never been running; touches no device.",
           run_osd_forget, "  sarsen osd forget 3")
      .add_option("OSD", options->osd, "Its number")
      ->required();
}

}  // namespace sarsen
