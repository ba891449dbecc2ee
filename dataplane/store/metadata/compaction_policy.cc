#include "dataplane/store/metadata/compaction_policy.h"

#include "dataplane/base/assert.h"

namespace sarsen {
namespace {

void add(CompactionPick& pick, const TableFileShape& file) {
  pick.inputs.push_back(file.name);
  pick.input_bytes += file.size_bytes;
}

std::uint64_t level_bytes(const FamilyShape& family, std::size_t level) {
  std::uint64_t bytes = 0;
  for (const TableFileShape& file : family[level]) bytes += file.size_bytes;
  return bytes;
}

// What a merge of everything has to write again.
std::uint64_t bytes_below_level0(const FamilyShape& family) {
  std::uint64_t bytes = 0;
  for (std::size_t level = 1; level < family.size(); ++level) bytes += level_bytes(family, level);
  return bytes;
}

bool level0_is_due(const FamilyShape& family, const CompactionLimits& limits) {
  const std::size_t files = family[0].size();
  if (files < limits.level0_files_min) return false;
  return files >= limits.level0_files_max || level_bytes(family, 0) >= bytes_below_level0(family);
}

CompactionPick merge_whole(const FamilyShape& family) {
  CompactionPick pick;
  for (const auto& level : family) {
    for (const TableFileShape& file : level) add(pick, file);
  }
  return pick;
}

CompactionPick merge_into_middle(const FamilyShape& family) {
  CompactionPick pick;
  pick.output_level = kMiddleLevel;
  for (const TableFileShape& file : family[0]) add(pick, file);
  for (const TableFileShape& file : family[kMiddleLevel]) add(pick, file);
  return pick;
}

// The lowest file of the middle level and what it overlaps below.
CompactionPick drain_middle(const FamilyShape& family) {
  CompactionPick pick;
  const TableFileShape& upper = family[kMiddleLevel].front();
  add(pick, upper);
  for (const TableFileShape& lower : family[kBottomLevel]) {
    if (lower.largest >= upper.smallest && lower.smallest <= upper.largest) add(pick, lower);
  }
  return pick;
}

}  // namespace

std::optional<CompactionPick> pick_compaction(const FamilyShape& family,
                                              const CompactionLimits& limits) {
  SARSEN_ASSERT(family.size() == kCompactionLevels, "a family has all of its levels");
  if (level0_is_due(family, limits)) {
    return bytes_below_level0(family) <= limits.whole_merge_bytes_max ? merge_whole(family)
                                                                      : merge_into_middle(family);
  }
  if (!family[kMiddleLevel].empty()) return drain_middle(family);
  return std::nullopt;
}

}  // namespace sarsen
