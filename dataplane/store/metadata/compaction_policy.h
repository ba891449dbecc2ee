// Which table files to merge next. A pure function; MetadataDb carries it out.
//
// Level 0 collects flushes, at least level0_files_min, until they outweigh what lies below or are
// level0_files_max. Then they are merged down: into the bottom level in one step while the family
// is small, else into the middle level, which is then drained into the bottom level file by file,
// so that a step stays bounded however large the family grows. Bytes written per flush of F bytes
// over D bytes of data, uniformly random keys: F + D / N while small, 2 F + D / N beyond, where N
// is the number of flushes per merge. A lookup asks at most N + 2 files, of which filters rule out
// nearly all. Space: up to twice D, and D again during a merge.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sarsen {

inline constexpr int kCompactionLevels = 7;
inline constexpr int kMiddleLevel = 5;
inline constexpr int kBottomLevel = 6;

struct CompactionLimits {
  std::uint32_t level0_files_min = 8;
  std::uint32_t level0_files_max = 24;
  // Families with up to this much below level 0 are merged whole.
  std::uint64_t whole_merge_bytes_max = 256ull << 20;
  std::uint64_t table_file_bytes = 16ull << 20;
};

struct TableFileShape {
  std::string name;
  std::uint64_t size_bytes = 0;
  std::string smallest;  // keys
  std::string largest;
};

// Files by level; level 0 in any order, the others disjoint and sorted by key.
using FamilyShape = std::vector<std::vector<TableFileShape>>;

struct CompactionPick {
  std::vector<std::string> inputs;
  std::uint64_t input_bytes = 0;
  int output_level = kBottomLevel;
};

// Nothing when there is nothing worth merging.
std::optional<CompactionPick> pick_compaction(const FamilyShape& family,
                                              const CompactionLimits& limits);

}  // namespace sarsen
