// Sets of device blocks as runs: plain functions on plain values.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "dataplane/store/index/device_run.h"

namespace sarsen {

// Sorts runs that do not overlap, and joins those that touch.
inline void sort_and_join(std::vector<DeviceRun>& runs) {
  std::sort(runs.begin(), runs.end(),
            [](const DeviceRun& a, const DeviceRun& b) { return a.start < b.start; });
  std::size_t kept = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (kept > 0 && runs[kept - 1].end() == runs[i].start) {
      runs[kept - 1].blocks += runs[i].blocks;
    } else {
      runs[kept++] = runs[i];
    }
  }
  runs.resize(kept);
}

// What of `run` is in none of `others`, which are sorted and do not overlap.
inline std::vector<DeviceRun> parts_outside(DeviceRun run, std::span<const DeviceRun> others) {
  std::vector<DeviceRun> parts;
  std::uint64_t at = run.start.value;
  const std::uint64_t end = run.end().value;
  const auto add_until = [&](std::uint64_t until) {
    if (at < until) parts.push_back({BlockIndex(at), static_cast<std::uint32_t>(until - at)});
  };
  auto other = std::upper_bound(others.begin(), others.end(), run.start,
                                [](BlockIndex a, const DeviceRun& b) { return a < b.end(); });
  for (; other != others.end() && other->start.value < end; ++other) {
    add_until(std::min(other->start.value, end));
    at = std::max(at, other->end().value);
  }
  add_until(end);
  return parts;
}

}  // namespace sarsen
