#include "dataplane/store/journal_writer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "dataplane/store/error.h"

namespace sarsen {

struct JournalWriter::Pending : ListNode {
  Pending(Executor& executor, JournalRecord r, std::span<const std::byte> d, std::uint64_t t)
      : record(std::move(r)), data(d), tag(t), done(executor) {}
  std::uint32_t payload_blocks() const {
    return record.kind == RecordKind::write ? record.block_count : 0;
  }
  JournalRecord record;
  std::span<const std::byte> data;
  std::uint64_t tag;
  Result<JournalReceipt> receipt;
  Event done;
};

struct JournalWriter::Group {
  Buffer buffer;
  std::size_t bytes = 0;
  ByteOffset offset;
  SegmentGeneration generation;
  JournalLsn end_lsn;
  JournalLsn durable_upto;  // as in its header
  bool seal = false;
  bool finished = false;
  std::optional<Error> error;
  IntrusiveList<Pending> members;
};

JournalWriter::JournalWriter(Env& env, Disk& disk, SegmentPool& pool, Superblock superblock,
                             JournalLimits limits, JournalObserver* observer)
    : env_(env),
      disk_(disk),
      pool_(pool),
      observer_(observer),
      superblock_(std::move(superblock)),
      limits_(limits),
      segment_blocks_(static_cast<std::uint32_t>(superblock_.geometry.segment_bytes / kBlockBytes)),
      work_(env.executor),
      rolled_(env.executor),
      active_(env.executor),
      gate_(env.executor),
      scope_(env.executor) {}

JournalWriter::~JournalWriter() = default;

void JournalWriter::start() {
  scope_.spawn(pump());
  scope_.spawn(seal_when_idle());
}

Task<Result<JournalReceipt>> JournalWriter::append(JournalRecord record,
                                                   std::span<const std::byte> data,
                                                   std::uint64_t tag) {
  auto hold = gate_.hold();
  if (!hold) co_return fail(make_error(StoreError::stopping));
  if (failure_) co_return fail(*failure_);
  Pending pending(env_.executor, std::move(record), data, tag);
  SARSEN_ASSERT(data.size() == std::size_t{pending.payload_blocks()} * kBlockBytes,
                "a `write` record brings whole blocks, the others bring none");
  pending_.push_back(pending);
  ++appended_;
  work_.notify_one();
  co_await pending.done.wait();
  co_return pending.receipt;
}

bool JournalWriter::work_is_ready() const {
  if (failure_) return stopping_;
  if (in_flight_.size() >= limits_.groups_in_flight_max) return false;
  if (!pending_.empty() || seal_wanted_ || roll_wanted_) return true;
  return stopping_ && in_flight_.empty();
}

Task<void> JournalWriter::pump() {
  while (true) {
    // Woken through the run queue: everything that was appended in that turn shares the group.
    co_await work_.wait_until([this] { return work_is_ready(); });
    const bool nothing_left = pending_.empty() && !seal_wanted_ && !roll_wanted_;
    if (failure_ || (stopping_ && nothing_left)) break;
    if (roll_wanted_ && pending_.empty()) {
      roll_wanted_ = false;
      if (open_ && group_index_ > 0) {
        previous_generation_ = open_->generation;
        previous_group_count_ = group_index_;
        open_.reset();
      }
      rolled_.notify_all();
      continue;
    }
    Selection selection = select(open_ ? segment_blocks_ - position_ : 0);
    if (!segment_has_room(selection)) {
      if (pending_.empty()) {  // a seal is not worth a segment
        seal_wanted_ = false;
        continue;
      }
      auto opened = co_await open_segment();
      if (!opened) {
        fail_all(opened.error());
        break;
      }
      selection = select(segment_blocks_);
      SARSEN_ASSERT(selection.count > 0, "any one record fits an empty segment");
    }
    // Short of memory: what waits has its data, so waiting a little loses nothing.
    if (!submit_group(selection)) (void)co_await env_.clock.sleep(milliseconds(1));
  }
  rolled_.notify_all();
}

bool JournalWriter::segment_has_room(const Selection& selection) const {
  if (!open_) return false;
  if (pending_.empty()) return selection.header_blocks <= segment_blocks_ - position_;
  return selection.count > 0 && blocks_named_ < limits_.segment_blocks_named_max &&
         selection.header_blocks + selection.payload_blocks <= segment_blocks_ - position_;
}

Task<Result<void>> JournalWriter::open_segment() {
  auto grant = co_await pool_.take();
  if (!grant) co_return fail(make_error(StoreError::stopping));
  if (open_) {
    previous_generation_ = open_->generation;
    previous_group_count_ = group_index_;
  }
  open_ = *grant;
  previous_segment_first_lsn_ = std::exchange(segment_first_lsn_, next_lsn_);
  position_ = 0;
  group_index_ = 0;
  blocks_named_ = 0;
  co_return Result<void>{};
}

// How many pending records, from the front, make a group of at most `blocks_available` blocks.
JournalWriter::Selection JournalWriter::select(std::uint32_t blocks_available) const {
  std::uint32_t echo_bytes = 0;
  for (const JournalRecord& record : echo_) echo_bytes += encoded_record_bytes(record);
  Selection chosen;
  chosen.header_blocks = group_header_blocks(0, echo_bytes);
  Selection trial = chosen;
  auto& pending = const_cast<IntrusiveList<Pending>&>(pending_);
  if (pending.empty()) return chosen;
  for (Pending* item = &pending.front(); item != nullptr; item = pending.next(*item)) {
    ++trial.count;
    trial.record_bytes += encoded_record_bytes(item->record);
    trial.payload_blocks += item->payload_blocks();
    trial.header_blocks = group_header_blocks(trial.record_bytes, echo_bytes);
    const bool within_limits =
        trial.count <= limits_.group_records_max &&
        (trial.count == 1 || trial.payload_blocks <= limits_.group_payload_blocks_max);
    if (!within_limits || trial.header_blocks + trial.payload_blocks > blocks_available) break;
    chosen = trial;
  }
  return chosen;
}

Result<void> JournalWriter::submit_group(const Selection& selection) {
  auto group = std::make_unique<Group>();
  group->bytes = std::size_t{selection.header_blocks + selection.payload_blocks} * kBlockBytes;
  auto buffer = env_.buffers.allocate(group->bytes);
  if (!buffer) return fail(buffer.error());
  group->buffer = *std::move(buffer);
  build(*group, selection);
  in_flight_.push_back(std::move(group));
  Group& submitted = *in_flight_.back();
  if (env_.faults.planted("journal.ack_before_durable")) {
    while (!submitted.members.empty()) submitted.members.pop_front().done.set();
  }
  scope_.spawn(write_group(&submitted));
  return {};
}

// Moves the selected records into `group` and lays out its bytes.
void JournalWriter::build(Group& group, const Selection& selection) {
  const std::uint64_t segment_start =
      superblock_.geometry.segment(open_->segment).value / kBlockBytes;
  GroupHeader header;
  header.device = superblock_.device;
  header.generation = open_->generation;
  header.run = superblock_.start_count;
  header.stream = env_.shard.value;
  header.segment = open_->segment;
  header.group_index = group_index_;
  header.position = position_;
  header.first_lsn = next_lsn_;
  header.durable_upto = durable_upto_;  // I-JOURNAL-8
  header.header_blocks = selection.header_blocks;
  header.payload_blocks = selection.payload_blocks;
  header.previous_generation = previous_generation_;
  header.previous_group_count = previous_group_count_;
  header.previous_checksum = previous_checksum_;
  header.segment_first_lsn = segment_first_lsn_;
  header.previous_segment_first_lsn = previous_segment_first_lsn_;
  header.seal = selection.count == 0;

  const std::size_t header_bytes = std::size_t{selection.header_blocks} * kBlockBytes;
  std::vector<JournalRecord> records;
  records.reserve(selection.count);
  std::uint32_t payload_block = 0;
  for (std::uint32_t i = 0; i < selection.count; ++i) {
    Pending& item = pending_.pop_front();
    item.record.payload_block = payload_block;
    item.receipt = JournalReceipt{
        .lsn = next_lsn_,
        .generation = header.generation,
        .payload = BlockIndex(segment_start + position_ + selection.header_blocks + payload_block)};
    if (!item.data.empty()) {
      std::memcpy(group.buffer.data() + header_bytes + std::size_t{payload_block} * kBlockBytes,
                  item.data.data(), item.data.size());
    }
    payload_block += item.payload_blocks();
    blocks_named_ += item.record.block_count - item.payload_blocks();
    next_lsn_ = next_lsn_.next();
    group.members.push_back(item);
    records.push_back(item.record);
  }
  previous_checksum_ = encode_group(header, records, echo_, superblock_.journal_salt,
                                    group.buffer.span(0, header_bytes));
  echo_ = std::move(records);  // I-JOURNAL-2
  group.offset = ByteOffset((segment_start + position_) * kBlockBytes);
  group.generation = header.generation;
  group.end_lsn = next_lsn_;
  group.durable_upto = header.durable_upto;
  group.seal = header.seal;
  if (group.seal) seal_wanted_ = false;
  position_ += selection.header_blocks + selection.payload_blocks;
  ++group_index_;
  bytes_written_ += group.bytes;
  ++groups_written_;
}

Task<void> JournalWriter::write_group(Group* submitted) {
  Group& group = *submitted;  // in in_flight_ until it is finished
  const auto bytes = group.buffer.span(0, group.bytes);
  Result<void> written;
  if (env_.faults.planted("journal.write_without_flush")) {
    written = co_await disk_.write(group.offset, bytes);
  } else {
    written = co_await disk_.write_durable(group.offset, bytes);
  }
  group.finished = true;
  if (!written) group.error = written.error();
  if (env_.faults.planted("journal.ack_out_of_order") && written) {
    while (!group.members.empty()) group.members.pop_front().done.set();
  }
  complete_prefix();
  work_.notify_one();
}

// I-JOURNAL-7: acknowledges groups in the order of the stream only.
void JournalWriter::complete_prefix() {
  while (!in_flight_.empty() && in_flight_.front()->finished) {
    Group& group = *in_flight_.front();
    if (group.error && !failure_ && !env_.faults.planted("journal.ignore_write_error")) {
      fail_all(make_error(StoreError::device_failed, group.error->message()));
    }
    if (!failure_) {
      durable_upto_ = group.end_lsn;
      recorded_durable_upto_ = group.durable_upto;
      if (!group.seal) active_.set();
    }
    while (!group.members.empty()) {
      Pending& member = group.members.pop_front();
      if (observer_ != nullptr && !failure_) {
        observer_->on_durable(std::move(member.record), *member.receipt, member.tag);
      }
      member.done.set();
    }
    in_flight_.pop_front();
  }
}

void JournalWriter::fail_all(Error error) {
  failure_ = error;
  const auto fail_members = [&](IntrusiveList<Pending>& members) {
    while (!members.empty()) {
      Pending& member = members.pop_front();
      member.receipt = fail(error);
      member.done.set();
    }
  };
  for (auto& group : in_flight_) fail_members(group->members);
  fail_members(pending_);
  work_.notify_one();
  rolled_.notify_all();
}

Task<void> JournalWriter::seal_when_idle() {
  while (!stopping_) {
    co_await active_.wait();
    active_.reset();
    std::uint64_t seen = appended_;
    while (!stopping_ && !failure_) {
      co_await env_.clock.sleep(limits_.seal_after);
      if (seen == appended_ && in_flight_.empty() && pending_.empty()) {
        seal_wanted_ = true;
        work_.notify_one();
        break;
      }
      seen = appended_;
    }
  }
}

Task<Result<void>> JournalWriter::roll() {
  auto hold = gate_.hold();
  if (!hold) co_return fail(make_error(StoreError::stopping));
  if (!open_ && pending_.empty()) co_return Result<void>{};
  roll_wanted_ = true;
  work_.notify_one();
  co_await rolled_.wait_until([this] { return !roll_wanted_ || failure_; });
  if (failure_) co_return fail(*failure_);
  co_return Result<void>{};
}

Task<void> JournalWriter::stop() {
  co_await gate_.close();
  stopping_ = true;
  seal_wanted_ = !failure_ && !echo_.empty();
  active_.set();
  work_.notify_one();
  co_await scope_.join();
}

SegmentGeneration JournalWriter::settled_below() const {
  SegmentGeneration bound = open_ ? open_->generation : pool_.next_generation();
  if (!in_flight_.empty()) bound = std::min(bound, in_flight_.front()->generation);
  return bound;
}

}  // namespace sarsen
