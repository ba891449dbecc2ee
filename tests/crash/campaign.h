// Campaign: many sequences in a few processes, progress, and the sums. A state that kills its
// process costs the rest of its sequence; the others go on.
#pragma once

#include <cstdint>
#include <string>

#include "tests/crash/explorer.h"

namespace sarsen::crash {

struct CampaignOptions {
  ExplorerOptions explorer;
  std::uint32_t length = 2;       // all sequences up to 2 letters; longer ones are sampled
  double minutes = 0;             // how long longer sequences are sampled
  std::uint64_t fail_stride = 5;  // every how many I/Os one fails
  unsigned processes = 2;
  bool stop_at_first = false;
};

// Prints a line for each violation as it is found, progress to stderr, and the sums.
ExplorerCounts run_campaign(const CampaignOptions& options);

// The line that repeats a state.
std::string command_of(const ExplorerOptions& options, const std::string& replay);

}  // namespace sarsen::crash
