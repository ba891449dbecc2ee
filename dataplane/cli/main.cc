// sarsen: what a person does by hand. Parses, and hands over to the verbs.
#include <cstdio>
#include <exception>

#include "dataplane/cli/verbs.h"

namespace sarsen {
namespace {

int run(int argument_count, char** arguments) {
  CommandLine line;
  line.app.require_subcommand(1);
  line.app.set_version_flag("--version", SARSEN_VERSION);
  line.app.footer(kExitCodes);
  add_cluster_verbs(line);
  add_osd_verbs(line);
  add_image_verbs(line);
  add_device_verbs(line);
  add_map_verbs(line);
  add_version_verb(line);

  try {
    line.app.parse(argument_count, arguments);
  } catch (const CLI::ParseError& error) {
    return line.app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::could_not);
  }
  const int code = static_cast<int>(line.verb());
  // A report that was cut short must not pass for a good one.
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  std::perror("sarsen: standard output");
  return static_cast<int>(ExitCode::could_not);
}

}  // namespace
}  // namespace sarsen

int main(int argument_count, char** arguments) {
  try {
    return sarsen::run(argument_count, arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "sarsen: %s\n", error.what());
    return static_cast<int>(sarsen::ExitCode::could_not);
  }
}
