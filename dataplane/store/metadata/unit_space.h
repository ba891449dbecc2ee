// Free units of the metadata zone, in memory. Not thread-safe: under MetadataFiles' mutex.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "dataplane/store/metadata/table_state.h"

namespace sarsen {

class UnitSpace {
 public:
  // The units become free. They must not be free already.
  void add(UnitExtent extent);
  // One free unit: `wanted` if it is free, else the lowest, or the highest when `from_top` (the
  // second copy of a mirrored file, far from the first).
  std::optional<std::uint32_t> take(std::uint32_t wanted, bool from_top);
  // Removes the units when all of them are free; else does nothing.
  bool take_all(UnitExtent extent);

  std::uint64_t free_units() const { return free_units_; }

 private:
  using Runs = std::map<std::uint32_t, std::uint32_t>;  // first -> count, never adjacent
  void cut(Runs::iterator run, UnitExtent extent);
  Runs::iterator run_with(std::uint32_t unit);

  Runs runs_;
  std::uint64_t free_units_ = 0;
};

}  // namespace sarsen
