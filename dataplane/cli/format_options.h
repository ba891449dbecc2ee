// Options of the verbs that format a device: `device format` and `osd create`.
#pragma once

#include <CLI/CLI.hpp>

#include "dataplane/cli/device_commands.h"

namespace sarsen {

// PATH, --journal-bytes, --lanes, --create, --size, --destroy, --confirm, --dry-run.
void add_format_options(CLI::App& verb, FormatOptionsOfCommand& options);

}  // namespace sarsen
