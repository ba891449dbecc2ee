// Which crash states of one point are worth opening, and how they are written in a line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/base/rng.h"
#include "tests/sim/disk_log.h"

namespace sarsen::crash {

struct StateLimits {
  // Every subset, while at most this many pending sectors differ from what was there before.
  std::uint32_t subset_sectors_max = 6;
  std::uint32_t random_states = 2;  // subsets, and as many with garbage
  std::uint32_t entries_max = 6;    // writes that are dropped, torn and spoiled one by one
};

// None and all; every subset while few sectors are pending, else each write dropped, alone, torn,
// and the prefixes; garbage in each write; random subsets without and with garbage.
std::vector<sim::CrashState> crash_states(sim::DiskLog& log, std::uint64_t point,
                                          const StateLimits& limits, Rng& rng);

// "17@16n3o1g": the point, then runs of fates (new, old, garbage).
std::string to_text(const sim::CrashState& state);
std::optional<sim::CrashState> state_of(std::string_view text);

}  // namespace sarsen::crash
