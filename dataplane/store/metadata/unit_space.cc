#include "dataplane/store/metadata/unit_space.h"

#include <iterator>

#include "dataplane/base/assert.h"

namespace sarsen {

void UnitSpace::add(UnitExtent extent) {
  if (extent.count == 0) return;
  auto next = runs_.lower_bound(extent.first);
  SARSEN_ASSERT(next == runs_.end() || next->first >= extent.first + extent.count,
                "I-META-2: a unit is freed once");
  free_units_ += extent.count;
  if (next != runs_.end() && next->first == extent.first + extent.count) {
    extent.count += next->second;
    next = runs_.erase(next);
  }
  if (next != runs_.begin()) {
    const auto previous = std::prev(next);
    SARSEN_ASSERT(previous->first + previous->second <= extent.first,
                  "I-META-2: a unit is freed once");
    if (previous->first + previous->second == extent.first) {
      previous->second += extent.count;
      return;
    }
  }
  runs_.emplace(extent.first, extent.count);
}

UnitSpace::Runs::iterator UnitSpace::run_with(std::uint32_t unit) {
  auto run = runs_.upper_bound(unit);
  if (run == runs_.begin()) return runs_.end();
  --run;
  return unit - run->first < run->second ? run : runs_.end();
}

// Takes `extent`, which lies in `run`, out of it.
void UnitSpace::cut(Runs::iterator run, UnitExtent extent) {
  const UnitExtent whole{run->first, run->second};
  runs_.erase(run);
  if (extent.first > whole.first) runs_.emplace(whole.first, extent.first - whole.first);
  const std::uint32_t end = extent.first + extent.count;
  if (whole.first + whole.count > end) runs_.emplace(end, whole.first + whole.count - end);
  free_units_ -= extent.count;
}

std::optional<std::uint32_t> UnitSpace::take(std::uint32_t wanted, bool from_top) {
  if (runs_.empty()) return std::nullopt;
  auto run = run_with(wanted);
  std::uint32_t unit = wanted;
  if (run == runs_.end()) {
    run = from_top ? std::prev(runs_.end()) : runs_.begin();
    unit = from_top ? run->first + run->second - 1 : run->first;
  }
  cut(run, {unit, 1});
  return unit;
}

bool UnitSpace::take_all(UnitExtent extent) {
  const auto run = run_with(extent.first);
  if (run == runs_.end() || run->first + run->second < extent.first + extent.count) return false;
  cut(run, extent);
  return true;
}

}  // namespace sarsen
