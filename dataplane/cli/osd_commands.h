// The verbs of `sarsen osd`. Each prints its report and gives the exit code.
#pragma once

#include <cstdint>
#include <string>

#include "dataplane/cli/device_commands.h"

namespace sarsen {

struct OsdCreateOptions {
  std::string mon;
  std::string node;  // empty: this machine's name
  FormatOptionsOfCommand device;
};
// Asks the mon for an id, and formats the device for it. The mon is asked when the device may be
// formatted, and told to forget the id when the format fails.
ExitCode run_osd_create(OsdCreateOptions options);

struct OsdOptions {
  std::string mon;
  std::uint32_t osd = 0;
  OutputFormat format = OutputFormat::text;
};
ExitCode run_osd_list(const OsdOptions& options);
// Takes back the id of an OSD that has never been running.
ExitCode run_osd_forget(const OsdOptions& options);

}  // namespace sarsen
