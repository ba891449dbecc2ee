#include "dataplane/store/journal_recovery.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "dataplane/store/segment_scanner.h"

namespace sarsen {
namespace {

using StreamKey = std::pair<std::uint64_t, std::uint32_t>;  // run, stream

std::uint64_t records_in(const JournalGroup& group) {
  return group.records.size();
}

JournalLsn end_of(const JournalGroup& group) {
  return JournalLsn(group.header.first_lsn.value + records_in(group));
}

std::uint32_t end_position(const JournalGroup& group) {
  return group.header.position + group.header.header_blocks + group.header.payload_blocks;
}

// Follows one stream from its first live group to its end.
class StreamWalk {
 public:
  StreamWalk(Env& env, Disk& disk, const Superblock& superblock, SegmentGeneration live_from,
             std::vector<JournalGroup> groups, RecoveredJournal& into)
      : env_(env),
        disk_(disk),
        superblock_(superblock),
        live_from_(live_from),
        groups_(std::move(groups)),
        into_(into) {}

  Task<Result<void>> run(std::optional<JournalLsn> recorded_end) {
    durable_ = recorded_end.value_or(durable_bound());
    // I-JOURNAL-5: a recorded end is a bound in both directions.
    const JournalLsn limit = recorded_end.value_or(JournalLsn(~std::uint64_t{0}));
    expected_ = first_expected();
    for (const JournalGroup& group : groups_) {
      if (group.header.first_lsn >= limit) break;
      if (!accept_gap_before(group)) break;
      auto whole = co_await believable(group);
      if (!whole) co_return fail(whole.error());
      if (!*whole) break;
      accept(group);
    }
    // What is missing at the very end, below the bound that another stream recorded, is lost too.
    if (recorded_end && expected_ < *recorded_end) lose(expected_, *recorded_end);
    const GroupHeader& any = groups_.front().header;
    end_ = std::max(expected_, durable_);
    into_.ends.push_back({.run = any.run, .stream = any.stream, .end = durable_});
    count_rolled_back();
    co_return Result<void>{};
  }

 private:
  JournalLsn durable_bound() const {
    JournalLsn bound;
    for (const JournalGroup& group : groups_) bound = std::max(bound, group.header.durable_upto);
    return bound;
  }

  // Where a stream whose first live group is `groups_.front()` must begin.
  JournalLsn first_expected() const {
    const GroupHeader& first = groups_.front().header;
    const SegmentGeneration previous = first.previous_generation;
    if (previous.value == 0 || previous < live_from_) return first.segment_first_lsn;
    // The segment before it should be here. Was it the first one that is live?
    if (previous == live_from_) return first.previous_segment_first_lsn;
    // More than one is unreadable: a stream starts at 1, so the loss is at most from there.
    return JournalLsn(1);
  }

  void lose(JournalLsn first, JournalLsn end) {
    const GroupHeader& any = groups_.front().header;
    into_.lost.push_back({.run = any.run, .stream = any.stream, .first = first, .end = end});
  }

  // I-JOURNAL-3 and -4 for records between what was accepted so far and `group`. False: cut here.
  bool accept_gap_before(const JournalGroup& group) {
    const JournalLsn first = group.header.first_lsn;
    if (expected_ >= first) return true;
    if (expected_ >= durable_) return false;
    const std::uint64_t echoed = group.echo.size();
    const JournalLsn echo_start(first.value - std::min(first.value, echoed));
    if (expected_ < echo_start) lose(expected_, std::min(echo_start, durable_));
    if (echo_start < durable_) accept_echo(group, std::max(expected_, echo_start));
    // Records of the gap beyond the bound are cut with everything after them.
    expected_ = std::min(first, durable_);
    return durable_ >= first;
  }

  void accept_echo(const JournalGroup& group, JournalLsn from) {
    const auto place = place_of_missing(group);
    ++into_.headers_rebuilt;
    const std::uint64_t echo_start = group.header.first_lsn.value - group.echo.size();
    for (std::size_t i = 0; i < group.echo.size(); ++i) {
      const JournalLsn lsn(echo_start + i);
      if (lsn < from || lsn >= durable_) continue;
      RecoveredRecord recovered;
      recovered.record = group.echo[i];
      recovered.lsn = lsn;
      recovered.generation = missing_generation(group);
      recovered.payload_lost = !place;
      if (place) recovered.payload = BlockIndex(*place + recovered.record.payload_block);
      into_.records.push_back(std::move(recovered));
    }
  }

  SegmentGeneration missing_generation(const JournalGroup& group) const {
    return group.header.group_index > 0 ? group.header.generation
                                        : group.header.previous_generation;
  }

  // The device block where the payload of the group just before `group` starts, if the groups
  // around it tell: its header part held its records and the echo of the group before it.
  std::optional<std::uint64_t> place_of_missing(const JournalGroup& group) const {
    const bool ended_segment = group.header.group_index == 0;
    const std::uint32_t index =
        (ended_segment ? group.header.previous_group_count : group.header.group_index) - 1;
    const bool follows_last = last_ != nullptr && last_->header.group_index + 1 == index &&
                              last_->header.generation == missing_generation(group);
    if (!follows_last && (index > 0 || ended_segment)) return std::nullopt;

    std::uint32_t echo_bytes = 0;
    if (last_ != nullptr) {
      for (const JournalRecord& record : last_->records) echo_bytes += encoded_record_bytes(record);
    }
    std::uint32_t record_bytes = 0;
    std::uint32_t payload_blocks = 0;
    for (const JournalRecord& record : group.echo) {
      record_bytes += encoded_record_bytes(record);
      if (record.kind == RecordKind::write) payload_blocks += record.block_count;
    }
    const std::uint32_t position = follows_last ? end_position(*last_) : 0;
    const std::uint32_t header_blocks = group_header_blocks(record_bytes, echo_bytes);
    const std::uint32_t end = position + header_blocks + payload_blocks;
    if (!ended_segment && end != group.header.position) return std::nullopt;
    const std::uint32_t segment = follows_last ? last_->header.segment : group.header.segment;
    return superblock_.geometry.segment(segment).value / kBlockBytes + position + header_blocks;
  }

  // Beyond the durable bound a group counts only when all of it is there.
  Task<Result<bool>> believable(JournalGroup group) {
    if (end_of(group) <= durable_) co_return true;
    if (env_.faults.planted("recovery.believe_torn_group")) co_return true;
    SegmentScanner scanner(env_, disk_, superblock_, group.header.segment);
    co_return co_await scanner.payload_is_whole(std::move(group));
  }

  void accept(const JournalGroup& group) {
    const std::uint64_t payload =
        superblock_.geometry.segment(group.header.segment).value / kBlockBytes +
        group.header.position + group.header.header_blocks;
    JournalLsn lsn = group.header.first_lsn;
    for (const JournalRecord& record : group.records) {
      RecoveredRecord recovered;
      recovered.record = record;
      recovered.lsn = lsn;
      recovered.generation = group.header.generation;
      recovered.payload = BlockIndex(payload + record.payload_block);
      recovered.unproven = lsn >= durable_;
      into_.records.push_back(std::move(recovered));
      lsn = lsn.next();
    }
    expected_ = end_of(group);
    last_ = &group;
    ++into_.groups;
  }

  void count_rolled_back() {
    for (const JournalGroup& group : groups_) {
      if (group.header.first_lsn >= end_) into_.records_rolled_back += records_in(group);
    }
  }

  Env& env_;
  Disk& disk_;
  const Superblock& superblock_;
  SegmentGeneration live_from_;
  std::vector<JournalGroup> groups_;
  RecoveredJournal& into_;
  JournalLsn durable_;
  JournalLsn expected_;
  JournalLsn end_;
  const JournalGroup* last_ = nullptr;  // the group accepted last
};

}  // namespace

Task<Result<RecoveredJournal>> recover_journal(Env& env, Disk& disk, Superblock superblock,
                                               SegmentGeneration live_from,
                                               std::function<bool(LaneId, LaneSequence)> applied) {
  RecoveredJournal recovered;
  std::map<StreamKey, std::vector<JournalGroup>> streams;
  for (std::uint32_t segment = 0; segment < superblock.geometry.segment_count; ++segment) {
    SegmentScanner scanner(env, disk, superblock, segment);
    auto groups = co_await scanner.scan(live_from);
    if (!groups) co_return fail(groups.error());
    recovered.blocks_unreadable += scanner.blocks_unreadable();
    if (groups->empty()) continue;
    const GroupHeader& header = groups->front().header;
    recovered.segments.push_back({.segment = segment, .generation = header.generation});
    auto& stream = streams[{header.run, header.stream}];
    std::move(groups->begin(), groups->end(), std::back_inserter(stream));
  }
  std::sort(recovered.segments.begin(), recovered.segments.end(),
            [](const auto& a, const auto& b) { return a.generation < b.generation; });

  // Newest run first: it says how far its recovery believed the older ones.
  std::map<StreamKey, JournalLsn> recorded_ends;
  std::vector<RecoveredJournal> parts;
  for (auto stream = streams.rbegin(); stream != streams.rend(); ++stream) {
    auto& groups = stream->second;
    std::sort(groups.begin(), groups.end(), [](const JournalGroup& a, const JournalGroup& b) {
      return std::pair(a.header.generation, a.header.group_index) <
             std::pair(b.header.generation, b.header.group_index);
    });
    std::optional<JournalLsn> recorded_end;
    if (auto end = recorded_ends.find(stream->first); end != recorded_ends.end()) {
      recorded_end = end->second;
    }
    RecoveredJournal part;
    StreamWalk walk(env, disk, superblock, live_from, std::move(groups), part);
    SARSEN_CO_TRY(co_await walk.run(recorded_end));
    for (const RecoveredRecord& record : part.records) {
      for (const StreamEnd& end : record.record.ends) {
        recorded_ends[{end.run, end.stream}] = end.end;
      }
    }
    parts.push_back(std::move(part));
  }
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    for (RecoveredRecord& record : part->records) {
      if (record.record.kind == RecordKind::stream_ends) continue;
      if (applied(record.record.lane, record.record.lane_sequence)) continue;
      recovered.records.push_back(std::move(record));
    }
    std::move(part->ends.begin(), part->ends.end(), std::back_inserter(recovered.ends));
    std::move(part->lost.begin(), part->lost.end(), std::back_inserter(recovered.lost));
    recovered.groups += part->groups;
    recovered.headers_rebuilt += part->headers_rebuilt;
    recovered.records_rolled_back += part->records_rolled_back;
  }
  co_return recovered;
}

}  // namespace sarsen
