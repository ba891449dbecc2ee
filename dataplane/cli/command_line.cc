#include "dataplane/cli/command_line.h"

#include <map>

namespace sarsen {

const char* const kExitCodes =
    "Exit status: 0 done, and nothing wrong was found; 1 refused, or problems were found, and "
    "nothing was changed; 2 wrong usage, or it could not be done.";

std::string footer(const std::string& examples) {
  return "Examples:\n" + examples + "\n" + kExitCodes;
}

void add_output(CLI::App& verb, OutputFormat& format) {
  static const std::map<std::string, OutputFormat> kFormats{{"text", OutputFormat::text},
                                                            {"json", OutputFormat::json}};
  verb.add_option("-o,--output", format, "text (default) or json")
      ->transform(CLI::CheckedTransformer(kFormats, CLI::ignore_case).description(""))
      ->type_name("FORMAT");
}

void add_mon(CLI::App& verb, std::string& address) {
  address = kDefaultMonAddress;
  verb.add_option("--mon", address, "Where sarsen-mon listens, as in unix:PATH or tcp:HOST:PORT")
      ->envname("SARSEN_MON")
      ->type_name("ADDRESS")
      ->capture_default_str();
}

CLI::App& image_noun(CommandLine& line) {
  if (line.image == nullptr) {
    line.image = line.app.add_subcommand("image", "Images: virtual disks of the cluster");
    line.image->require_subcommand(1);
  }
  return *line.image;
}

}  // namespace sarsen
