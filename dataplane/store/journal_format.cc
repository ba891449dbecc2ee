#include "dataplane/store/journal_format.h"

#include <algorithm>

#include "dataplane/base/codec.h"
#include "dataplane/base/crc32c.h"
#include "dataplane/store/error.h"

namespace sarsen {
namespace {

// Spells "SGRP" on the device.
constexpr std::uint32_t kGroupMagic = 0x50524753;
constexpr std::uint16_t kFlagSeal = 1;
constexpr std::size_t kRunBytes = 16;
constexpr std::size_t kEndBytes = 24;
constexpr std::size_t kSourceBytes = 32;

std::uint32_t header_checksum(std::span<const std::byte> part, std::uint64_t salt) {
  // The first 8 bytes are the magic and the checksum itself.
  const std::uint32_t seed = crc32c(std::as_bytes(std::span(&salt, 1)));
  return crc32c(part.subspan(8), seed);
}

void encode_key(ByteWriter& writer, const ObjectKey& key) {
  writer.put(key.pool);
  writer.u32(0);
  writer.u64(key.family);
  writer.u64(key.branch);
  writer.u64(key.object_number);
}

ObjectKey decode_key(ByteReader& reader) {
  ObjectKey key;
  key.pool = reader.get<PoolId>();
  reader.zeros(4);
  key.family = reader.u64();
  key.branch = reader.u64();
  key.object_number = reader.u64();
  return key;
}

void encode_record(ByteWriter& writer, const JournalRecord& record) {
  const std::size_t start = writer.offset();
  writer.u32(encoded_record_bytes(record));
  writer.put(record.kind);
  writer.u8(record.source ? 1 : 0);
  writer.u16(static_cast<std::uint16_t>(record.runs.size()));
  writer.put(record.lane);
  writer.u32(record.payload_block);
  writer.put(record.lane_sequence);
  encode_key(writer, record.object);
  writer.u32(record.first_block);
  writer.u32(record.block_count);
  const WriteStamp& stamp = record.stamp;
  writer.put(stamp.pg_epoch);
  writer.put(stamp.pg_sequence);
  writer.u64(stamp.holder);
  writer.u64(stamp.attach_epoch);
  writer.u64(stamp.session);
  writer.u64(stamp.operation_id);
  writer.u64(stamp.first_unacknowledged);
  writer.u64(stamp.snapshot_generation);
  writer.u64(stamp.change_generation);
  writer.u16(static_cast<std::uint16_t>(record.ends.size()));
  writer.u16(static_cast<std::uint16_t>(record.checksums.size()));
  writer.u32(0);  // bytes of extensions: none yet
  SARSEN_ASSERT(writer.offset() - start == kRecordFixedBytes, "the fixed part of a record");
  for (const DeviceRun& run : record.runs) {
    writer.put(run.start);
    writer.u32(run.blocks);
    writer.u32(0);
  }
  if (record.source) encode_key(writer, *record.source);
  for (const StreamEnd& end : record.ends) {
    writer.u64(end.run);
    writer.u32(end.stream);
    writer.u32(0);
    writer.put(end.end);
  }
  for (const std::uint32_t checksum : record.checksums) writer.u32(checksum);
  writer.pad_to(8);
}

bool plausible(const JournalRecord& record, std::uint32_t payload_blocks) {
  if (record.first_block > kBlocksPerObject ||
      record.block_count > kBlocksPerObject - record.first_block) {
    return false;
  }
  const auto run_blocks = [&record] {
    std::uint64_t blocks = 0;
    for (const DeviceRun& run : record.runs) blocks += run.blocks;
    return blocks;
  };
  switch (record.kind) {
    case RecordKind::write:
      return record.block_count > 0 && record.checksums.size() == record.block_count &&
             record.runs.empty() && record.payload_block <= payload_blocks &&
             record.block_count <= payload_blocks - record.payload_block;
    case RecordKind::write_extents:
      return record.block_count > 0 && record.checksums.size() == record.block_count &&
             run_blocks() == record.block_count;
    case RecordKind::zero: return record.block_count > 0 && record.checksums.empty();
    case RecordKind::remove_object: return record.checksums.empty() && record.runs.empty();
    case RecordKind::share_object: return record.source.has_value();
    case RecordKind::stream_ends: return record.checksums.empty() && record.runs.empty();
  }
  return false;
}

// Reads one record; the reader fails on anything that cannot be.
JournalRecord decode_record(ByteReader& reader) {
  JournalRecord record;
  const std::size_t start = reader.offset();
  const std::uint32_t bytes = reader.u32();
  record.kind = reader.get<RecordKind>();
  const std::uint8_t has_source = reader.u8();
  const std::uint16_t run_count = reader.u16();
  record.lane = reader.get<LaneId>();
  record.payload_block = reader.u32();
  record.lane_sequence = reader.get<LaneSequence>();
  record.object = decode_key(reader);
  record.first_block = reader.u32();
  record.block_count = reader.u32();
  WriteStamp& stamp = record.stamp;
  stamp.pg_epoch = reader.get<PgEpoch>();
  stamp.pg_sequence = reader.get<PgSequence>();
  stamp.holder = reader.u64();
  stamp.attach_epoch = reader.u64();
  stamp.session = reader.u64();
  stamp.operation_id = reader.u64();
  stamp.first_unacknowledged = reader.u64();
  stamp.snapshot_generation = reader.u64();
  stamp.change_generation = reader.u64();
  const std::uint16_t end_count = reader.u16();
  const std::uint16_t checksum_count = reader.u16();
  const std::uint32_t extension_bytes = reader.u32();

  // Sizes are checked against what is there before anything is allocated for them.
  const std::size_t variable = run_count * kRunBytes + (has_source != 0 ? kSourceBytes : 0) +
                               end_count * kEndBytes + checksum_count * std::size_t{4};
  if (has_source > 1 || extension_bytes != 0 ||
      round_up(kRecordFixedBytes + variable, 8) != bytes || variable > reader.remaining()) {
    reader.mark_failed();
    return record;
  }
  for (std::uint16_t i = 0; i < run_count; ++i) {
    DeviceRun run;
    run.start = reader.get<BlockIndex>();
    run.blocks = reader.u32();
    reader.zeros(4);
    record.runs.push_back(run);
  }
  if (has_source != 0) record.source = decode_key(reader);
  for (std::uint16_t i = 0; i < end_count; ++i) {
    StreamEnd end;
    end.run = reader.u64();
    end.stream = reader.u32();
    reader.zeros(4);
    end.end = reader.get<JournalLsn>();
    record.ends.push_back(end);
  }
  for (std::uint16_t i = 0; i < checksum_count; ++i) record.checksums.push_back(reader.u32());
  if (reader.ok()) reader.zeros(bytes - (reader.offset() - start));
  return record;
}

}  // namespace

std::uint32_t encoded_record_bytes(const JournalRecord& record) {
  const std::size_t bytes = kRecordFixedBytes + record.runs.size() * kRunBytes +
                            (record.source ? kSourceBytes : 0) + record.ends.size() * kEndBytes +
                            record.checksums.size() * 4;
  return static_cast<std::uint32_t>(round_up(bytes, 8));
}

std::uint32_t group_header_blocks(std::uint32_t record_bytes, std::uint32_t echo_bytes) {
  const std::uint64_t bytes = std::uint64_t{kGroupHeaderBytes} + record_bytes + echo_bytes;
  return static_cast<std::uint32_t>(round_up(bytes, kBlockBytes) / kBlockBytes);
}

std::uint32_t encode_group(const GroupHeader& header, std::span<const JournalRecord> records,
                           std::span<const JournalRecord> echo, std::uint64_t salt,
                           std::span<std::byte> into) {
  SARSEN_ASSERT(into.size() == std::size_t{header.header_blocks} * kBlockBytes,
                "the header part has the size that it names");
  ByteWriter writer(into);
  writer.u32(kGroupMagic);
  writer.u32(0);  // the checksum, below
  writer.bytes(header.device);
  writer.put(header.generation);
  writer.u64(header.run);
  writer.u32(header.stream);
  writer.u32(header.segment);
  writer.u32(header.group_index);
  writer.u32(header.position);
  writer.put(header.first_lsn);
  writer.put(header.durable_upto);
  writer.u32(static_cast<std::uint32_t>(records.size()));
  writer.u32(static_cast<std::uint32_t>(echo.size()));
  writer.u32(header.header_blocks);
  writer.u32(header.payload_blocks);
  writer.put(header.previous_generation);
  writer.u32(header.previous_group_count);
  writer.u32(header.previous_checksum);
  writer.u16(header.seal ? kFlagSeal : 0);
  writer.zeros(6);
  writer.put(header.segment_first_lsn);
  writer.put(header.previous_segment_first_lsn);
  SARSEN_ASSERT(writer.offset() == kGroupHeaderBytes, "the header of a group");
  for (const JournalRecord& record : records) encode_record(writer, record);
  for (const JournalRecord& record : echo) encode_record(writer, record);
  writer.zeros(writer.remaining());
  SARSEN_ASSERT(writer.ok(), "records fit the header part that was computed for them");
  const std::uint32_t checksum = header_checksum(into, salt);
  writer.u32_at(4, checksum);
  return checksum;
}

std::optional<GroupProbe> probe_group(std::span<const std::byte> first_block, const Uuid& device,
                                      std::uint32_t segment, std::uint32_t position) {
  ByteReader reader(first_block);
  if (reader.u32() != kGroupMagic) return std::nullopt;
  reader.skip(4);
  Uuid found_device;
  reader.copy_to(found_device);
  reader.skip(8 + 8 + 4);
  const std::uint32_t found_segment = reader.u32();
  reader.skip(4);
  const std::uint32_t found_position = reader.u32();
  reader.skip(8 + 8 + 4 + 4);
  GroupProbe probe;
  probe.header_blocks = reader.u32();
  probe.payload_blocks = reader.u32();
  // I-JOURNAL-1
  if (!reader.ok() || found_device != device || found_segment != segment ||
      found_position != position || probe.header_blocks == 0 ||
      probe.header_blocks > kGroupHeaderBlocksMax) {
    return std::nullopt;
  }
  return probe;
}

Result<JournalGroup> decode_group(std::span<const std::byte> header_part, std::uint64_t salt,
                                  const Uuid& device, std::uint32_t segment,
                                  std::uint32_t position) {
  const auto bad = [&](const char* what) {
    return fail(make_error(StoreError::corrupt_journal, std::string(what) + " in segment " +
                                                            std::to_string(segment) + " block " +
                                                            std::to_string(position)));
  };
  if (header_part.size() < kBlockBytes) return bad("a header part shorter than a block");
  const auto probe = probe_group(header_part.first(kBlockBytes), device, segment, position);
  if (!probe) return bad("no group header");
  if (header_part.size() != std::size_t{probe->header_blocks} * kBlockBytes) {
    return bad("a header part of the wrong size");
  }
  JournalGroup group;
  ByteReader reader(header_part);
  reader.skip(4);
  group.checksum = reader.u32();
  if (group.checksum != header_checksum(header_part, salt)) return bad("a bad header checksum");

  GroupHeader& header = group.header;
  reader.copy_to(header.device);
  header.generation = reader.get<SegmentGeneration>();
  header.run = reader.u64();
  header.stream = reader.u32();
  header.segment = reader.u32();
  header.group_index = reader.u32();
  header.position = reader.u32();
  header.first_lsn = reader.get<JournalLsn>();
  header.durable_upto = reader.get<JournalLsn>();
  const std::uint32_t record_count = reader.u32();
  const std::uint32_t echo_count = reader.u32();
  header.header_blocks = reader.u32();
  header.payload_blocks = reader.u32();
  header.previous_generation = reader.get<SegmentGeneration>();
  header.previous_group_count = reader.u32();
  header.previous_checksum = reader.u32();
  const std::uint16_t flags = reader.u16();
  header.seal = (flags & kFlagSeal) != 0;
  if ((flags & ~kFlagSeal) != 0) reader.mark_failed();
  reader.zeros(6);
  header.segment_first_lsn = reader.get<JournalLsn>();
  header.previous_segment_first_lsn = reader.get<JournalLsn>();
  for (std::uint32_t i = 0; i < record_count && reader.ok(); ++i) {
    group.records.push_back(decode_record(reader));
    if (!plausible(group.records.back(), header.payload_blocks)) return bad("a record");
  }
  for (std::uint32_t i = 0; i < echo_count && reader.ok(); ++i) {
    group.echo.push_back(decode_record(reader));
    if (!plausible(group.echo.back(), ~0u)) return bad("an echoed record");
  }
  reader.zeros(reader.remaining());
  if (!reader.ok()) return bad("a malformed group header");
  return group;
}

}  // namespace sarsen
