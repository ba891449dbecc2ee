// The nouns of the command line, one function and one file each. main() calls them in this order.
#pragma once

#include "dataplane/cli/command_line.h"

namespace sarsen {

void add_cluster_verbs(CommandLine& line);  // cluster_verbs.cc: cluster, status, health
void add_osd_verbs(CommandLine& line);      // osd_verbs.cc
void add_image_verbs(CommandLine& line);    // image_verbs.cc: the catalogue
void add_map_verbs(CommandLine& line);      // map_verbs.cc: image map and its kin
void add_device_verbs(CommandLine& line);   // device_verbs.cc
void add_version_verb(CommandLine& line);   // version_verb.cc

}  // namespace sarsen
