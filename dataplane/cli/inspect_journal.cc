#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dataplane/cli/inspect_report.h"
#include "dataplane/store/segment_scanner.h"

namespace sarsen {
namespace {

constexpr std::size_t kObjectRecordsListed = 1000;

std::string kind_name(RecordKind kind) {
  switch (kind) {
    case RecordKind::write: return "write";
    case RecordKind::write_extents: return "write_extents";
    case RecordKind::zero: return "zero";
    case RecordKind::remove_object: return "remove_object";
    case RecordKind::share_object: return "share_object";
    case RecordKind::stream_ends: return "stream_ends";
  }
  return fmt::format("kind {}", static_cast<int>(kind));
}

struct SegmentCount {
  std::uint64_t records = 0;
  std::uint64_t seals = 0;
  std::uint64_t damaged = 0;  // groups whose data does not match
  std::set<std::uint64_t> runs;
  std::set<std::uint32_t> streams;
};

void list_records(const JournalGroup& group, const ObjectKey& object, Json& list) {
  for (std::size_t i = 0; i < group.records.size(); ++i) {
    const JournalRecord& record = group.records[i];
    if (record.object != object || list.size() >= kObjectRecordsListed) continue;
    list.push_back({{"segment", group.header.segment},
                    {"lsn", group.header.first_lsn.value + i},
                    {"kind", kind_name(record.kind)},
                    {"first_block", record.first_block},
                    {"blocks", record.block_count},
                    {"lane", record.lane.value},
                    {"lane_sequence", record.lane_sequence.value}});
  }
}

}  // namespace

Task<Result<Json>> inspect_journal(Inspection* inspection) {
  const Superblock& superblock = inspection->contents.reading.superblock;
  const SegmentGeneration live_from = inspection->contents.roots.live_from;
  Json segments = Json::array();
  Json object_records = Json::array();
  std::map<std::string, std::uint64_t> kinds;
  std::uint64_t empty = 0;
  for (std::uint32_t i = 0; i < superblock.geometry.segment_count; ++i) {
    SegmentScanner scanner(inspection->env, inspection->disk, superblock, i);
    auto groups = co_await scanner.scan(SegmentGeneration(0));
    if (!groups) co_return fail(groups.error());
    if (groups->empty() && scanner.blocks_unreadable() == 0) {
      ++empty;
      continue;
    }
    SegmentCount count;
    SegmentGeneration generation;
    for (const JournalGroup& group : *groups) {
      generation = group.header.generation;
      count.records += group.records.size();
      count.seals += group.header.seal ? 1 : 0;
      count.runs.insert(group.header.run);
      count.streams.insert(group.header.stream);
      for (const JournalRecord& record : group.records) ++kinds[kind_name(record.kind)];
      auto whole = co_await scanner.payload_is_whole(group);
      if (!whole) co_return fail(whole.error());
      if (!*whole) ++count.damaged;
      if (inspection->object) list_records(group, *inspection->object, object_records);
    }
    const bool live = generation >= live_from && !groups->empty();
    if (live && (count.damaged > 0 || scanner.blocks_unreadable() > 0)) inspection->sound = false;
    segments.push_back({{"segment", i},
                        {"state", live ? "live" : "freed"},
                        {"generation", generation.value},
                        {"run", fmt::format("{}", fmt::join(count.runs, ","))},
                        {"stream", fmt::format("{}", fmt::join(count.streams, ","))},
                        {"groups", groups->size()},
                        {"records", count.records},
                        {"seals", count.seals},
                        {"groups_with_bad_data", count.damaged},
                        {"blocks_unreadable", scanner.blocks_unreadable()}});
  }
  Json report{{"live_from_generation", live_from.value},
              {"segments_never_used", empty},
              {"records_by_kind", kinds},
              {"segments", segments}};
  if (inspection->object) report["records_of_the_object"] = object_records;
  co_return report;
}

}  // namespace sarsen
