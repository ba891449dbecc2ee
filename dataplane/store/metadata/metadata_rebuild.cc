#include "dataplane/store/metadata/metadata_rebuild.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

namespace sarsen {
namespace {

constexpr std::uint64_t kCopyBatchEntries = 256;

struct KeyRange {
  std::string first;
  std::string last;  // included
};

// Ranges of one family, sorted, those that overlap joined.
std::vector<KeyRange> ranges_of(MetadataFamily family, std::vector<DamagedRange> damaged) {
  std::erase_if(damaged, [&](const DamagedRange& range) { return range.family != family; });
  std::ranges::sort(damaged, {}, &DamagedRange::first);
  std::vector<KeyRange> ranges;
  for (DamagedRange& range : damaged) {
    if (!ranges.empty() && range.first <= ranges.back().last) {
      ranges.back().last = std::max(ranges.back().last, range.last);
    } else {
      ranges.push_back({std::move(range.first), std::move(range.last)});
    }
  }
  return ranges;
}

class Copier {
 public:
  Copier(MetadataDb& source, MetadataDb& target) : source_(source), target_(target) {}

  Result<void> copy_family(MetadataFamily family, const std::vector<DamagedRange>& damaged) {
    std::string from;
    for (const KeyRange& range : ranges_of(family, damaged)) {
      SARSEN_TRY(copy_between(family, from, range.first));
      SARSEN_TRY(copy_readable(family, range));
      from = range.last + '\0';
    }
    return copy_between(family, from, {});
  }
  Result<void> finish() {
    SARSEN_TRY(target_.write(batch_));
    return target_.flush();
  }
  std::uint64_t entries() const { return entries_; }

 private:
  Result<void> copy(MetadataFamily family, std::string_view key, std::string_view value) {
    batch_.put(family, key, value);
    if (++entries_ % kCopyBatchEntries != 0) return {};
    SARSEN_TRY(target_.write(batch_));
    batch_.clear();
    return {};
  }
  // Keys in [begin, end): all of their blocks are good.
  Result<void> copy_between(MetadataFamily family, std::string_view begin, std::string_view end) {
    auto cursor = source_.cursor(family, begin, end);
    for (; cursor.valid(); cursor.next()) SARSEN_TRY(copy(family, cursor.key(), cursor.value()));
    return cursor.status();
  }
  // A key whose newest value lies in a good block is found although older ones are lost.
  Result<void> copy_readable(MetadataFamily family, const KeyRange& range) {
    for (const std::string& key : source_.readable_keys(family, range.first, range.last)) {
      const auto value = source_.get(family, key);
      if (!value && !is(value.error(), MetadataError::corrupt)) return fail(value.error());
      if (value && *value) SARSEN_TRY(copy(family, key, **value));
    }
    return {};
  }

  MetadataDb& source_;
  MetadataDb& target_;
  MetadataBatch batch_;
  std::uint64_t entries_ = 0;
};

}  // namespace

Result<RebuildReport> rebuild_metadata_db(MetadataFiles& files, const MetadataDbOptions& options) {
  RebuildReport report;
  MetadataDbOptions fresh = options;
  fresh.name = options.name + kUnfinishedSuffix;
  fresh.create = true;
  {
    auto source = MetadataDb::open(files, options);
    if (!source) return fail(std::move(source).error());
    auto target = MetadataDb::open(files, fresh);
    if (!target) return fail(std::move(target).error());
    auto damaged = (*source)->damaged_ranges(MetadataDb::Look::everything);
    if (!damaged) return fail(std::move(damaged).error());
    Copier copier(**source, **target);
    for (std::size_t i = 0; i < kMetadataFamilies; ++i) {
      SARSEN_TRY(copier.copy_family(static_cast<MetadataFamily>(i), *damaged));
    }
    SARSEN_TRY(copier.finish());
    report.entries = copier.entries();
    report.lost = *std::move(damaged);
  }
  SARSEN_TRY(files.replace_all(fresh.name + "/", options.name + "/"));
  return report;
}

}  // namespace sarsen
