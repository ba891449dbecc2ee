// Journal groups on the device: encoding and decoding, no I/O. docs/on_disk_format.md, section 3.
//
// A segment is a sequence of groups, each one device write:
//
//   [group header | record headers | echo of the previous group's record headers |
//   padding][payload]
//
// The header part is 1 or more blocks with one salted checksum; the payload is whole blocks, each
// covered by a crc32c in its record's header.
//
// Invariants
//   I-JOURNAL-1  A group names its own place (device, segment, generation, block), so that a
//                misdirected or stale group never passes for another.
//   I-JOURNAL-2  Each group echoes the record headers of the one before it in its stream: one bad
//                header never loses the identities of acknowledged records.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <absl/container/inlined_vector.h>

#include "dataplane/base/result.h"
#include "dataplane/base/units.h"
#include "dataplane/store/index/device_run.h"
#include "dataplane/store/index/object_key.h"
#include "dataplane/store/superblock.h"

namespace sarsen {

// Position of a record in its stream: 1, 2, 3, ... without gaps.
using JournalLsn = Strong<struct JournalLsnTag>;
// One use of one segment; rises across the whole device and is never reused (I-SUPER-3).
using SegmentGeneration = Strong<struct SegmentGenerationTag>;

enum class RecordKind : std::uint8_t {
  write = 1,          // data of the blocks follows in the payload of the group
  write_extents = 2,  // data is already durable at `runs` (rule S2)
  zero = 3,           // the blocks read as zeros and take no space
  remove_object = 4,  // every block of the object is zero; the object is gone
  share_object = 5,   // the object becomes a clone of `source` by reference
  stream_ends = 6,    // what recovery accepted of older streams; `ends`
};

// Who wrote, for retries (rule R7), fencing (R6) and change tracking (S7). Opaque to the store.
struct WriteStamp {
  PgEpoch pg_epoch;
  PgSequence pg_sequence;
  std::uint64_t holder = 0;
  std::uint64_t attach_epoch = 0;
  std::uint64_t session = 0;
  std::uint64_t operation_id = 0;
  std::uint64_t first_unacknowledged = 0;
  std::uint64_t snapshot_generation = 0;
  std::uint64_t change_generation = 0;
  bool operator==(const WriteStamp&) const = default;
};

// How far recovery believed a stream of an earlier run: records below `end` are durable, all others
// of that stream are void for ever.
struct StreamEnd {
  std::uint64_t run = 0;
  std::uint32_t stream = 0;
  JournalLsn end;
  bool operator==(const StreamEnd&) const = default;
};

struct JournalRecord {
  RecordKind kind = RecordKind::write;
  LaneId lane;
  LaneSequence lane_sequence;
  ObjectKey object;
  std::uint32_t first_block = 0;  // within the object
  std::uint32_t block_count = 0;
  WriteStamp stamp;
  std::uint32_t payload_block = 0;         // `write`: where its data starts in the group's payload
  absl::InlinedVector<DeviceRun, 1> runs;  // `write_extents`
  absl::InlinedVector<std::uint32_t, 2> checksums;  // `write`, `write_extents`: of each block
  std::optional<ObjectKey> source;                  // `share_object`
  std::vector<StreamEnd> ends;                      // `stream_ends`
  bool operator==(const JournalRecord&) const = default;
};

struct GroupHeader {
  Uuid device{};
  SegmentGeneration generation;
  std::uint64_t run = 0;     // start_count of the run that wrote it
  std::uint32_t stream = 0;  // shard number in that run
  std::uint32_t segment = 0;
  std::uint32_t group_index = 0;  // in the segment
  std::uint32_t position = 0;     // block in the segment
  JournalLsn first_lsn;           // of its first record, or of the next one when it has none
  JournalLsn durable_upto;        // every record of the stream below it is durable
  std::uint32_t header_blocks = 0;
  std::uint32_t payload_blocks = 0;
  SegmentGeneration previous_generation;   // of the segment before in the stream; 0: none
  std::uint32_t previous_group_count = 0;  // groups in that segment
  std::uint32_t previous_checksum = 0;     // header checksum of the group before; 0: none
  JournalLsn segment_first_lsn;            // first_lsn of group 0 of this segment
  JournalLsn previous_segment_first_lsn;   // and of the segment before; 0: none
  bool seal = false;
  bool operator==(const GroupHeader&) const = default;
};

struct JournalGroup {
  GroupHeader header;
  std::vector<JournalRecord> records;
  std::vector<JournalRecord> echo;  // of the group before it in the stream
  std::uint32_t checksum = 0;       // of the header part
};

inline constexpr std::uint32_t kGroupHeaderBytes = 128;
inline constexpr std::uint32_t kRecordFixedBytes = 144;
inline constexpr std::uint32_t kGroupHeaderBlocksMax = 64;

// Bytes that a record takes in a header.
std::uint32_t encoded_record_bytes(const JournalRecord& record);
// Blocks that the header part of a group takes.
std::uint32_t group_header_blocks(std::uint32_t record_bytes, std::uint32_t echo_bytes);

// Writes the header part into `into` (header_blocks * kBlockBytes long) and returns its checksum.
std::uint32_t encode_group(const GroupHeader& header, std::span<const JournalRecord> records,
                           std::span<const JournalRecord> echo, std::uint64_t salt,
                           std::span<std::byte> into);

// What the first block of a header part says of itself, not yet verified; nothing when it cannot be
// the header of a group at this place.
struct GroupProbe {
  std::uint32_t header_blocks = 0;
  std::uint32_t payload_blocks = 0;
};
std::optional<GroupProbe> probe_group(std::span<const std::byte> first_block, const Uuid& device,
                                      std::uint32_t segment, std::uint32_t position);

// Verifies and decodes a header part. Error: corrupt_journal.
Result<JournalGroup> decode_group(std::span<const std::byte> header_part, std::uint64_t salt,
                                  const Uuid& device, std::uint32_t segment,
                                  std::uint32_t position);

}  // namespace sarsen
