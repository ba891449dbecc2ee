// The nouns of the command line, one function and one file each. main() calls them in this order.
#pragma once

#include "dataplane/cli/command_line.h"

namespace sarsen {

void add_device_verbs(CommandLine& line);  // device_verbs.cc
void add_map_verbs(CommandLine& line);     // map_verbs.cc
void add_version_verb(CommandLine& line);  // version_verb.cc

}  // namespace sarsen
