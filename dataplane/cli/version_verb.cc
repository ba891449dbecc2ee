#include <memory>

#include "dataplane/cli/verbs.h"
#include "dataplane/store/superblock.h"

namespace sarsen {

void add_version_verb(CommandLine& line) {
  const auto format = std::make_shared<OutputFormat>(OutputFormat::text);
  CLI::App* version = line.app.add_subcommand("version", "The version of this program");
  add_output(*version, *format);
  version->footer(footer("  sarsen version -o json"));
  version->callback([&line, format] {
    line.verb = [format] {
      print_report(Json{{"version", SARSEN_VERSION}, {"format_version", kFormatVersion}}, *format);
      return ExitCode::ok;
    };
  });
}

}  // namespace sarsen
