// Bytes of table records: payloads of snapshots and of changes, and the header around them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "dataplane/base/result.h"
#include "dataplane/store/metadata/aligned_buffer.h"
#include "dataplane/store/metadata/table_state.h"

namespace sarsen {

// FNV-1a, 64 bits.
std::uint64_t device_hash(std::span<const std::byte, 16> device_uuid);

struct TableRecordIdentity {
  std::uint64_t device_hash = 0;
  std::uint64_t generation = 0;
  std::uint64_t index = 0;
  TableRecordKind kind = TableRecordKind::changes;
};

struct TableRecordView {
  TableRecordIdentity identity;
  std::span<const std::byte> payload;
  std::size_t size_bytes = 0;  // with header and padding
};

std::vector<std::byte> encode_snapshot(const TableState& state);
std::vector<std::byte> encode_changes(std::span<const TableChange> changes);

// Error: corrupt. Never trusts a length: the checksum has passed, but the bytes may be anybody's.
Result<TableState> decode_snapshot(std::span<const std::byte> payload);
Result<std::vector<TableChange>> decode_changes(std::span<const std::byte> payload);

// Bytes on the device of a record with this payload.
std::size_t record_size_bytes(std::size_t payload_bytes);
AlignedBuffer encode_record(const TableRecordIdentity& identity,
                            std::span<const std::byte> payload);
// The record at the start of `bytes`, or nothing when there is no valid one of this device.
std::optional<TableRecordView> parse_record(std::span<const std::byte> bytes,
                                            std::uint64_t device_hash);

}  // namespace sarsen
