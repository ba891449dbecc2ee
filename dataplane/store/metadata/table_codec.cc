#include "dataplane/store/metadata/table_codec.h"

#include <cstring>
#include <string>

#include "dataplane/base/assert.h"
#include "dataplane/base/codec.h"
#include "dataplane/base/crc32c.h"
#include "dataplane/store/metadata/metadata_error.h"

namespace sarsen {
namespace {

constexpr std::size_t kRecordChecksummedFrom = offsetof(TableRecordHeader, device_hash);
constexpr std::size_t kOwnerBytes = sizeof(std::uint32_t);

Unexpected malformed(const char* what) {
  return fail(make_error(MetadataError::corrupt, std::string("device table: malformed ") + what));
}

template <typename Struct>
void put_struct(ByteWriter& writer, const Struct& value) {
  writer.bytes(std::as_bytes(std::span(&value, 1)));
}
template <typename Struct>
Struct get_struct(ByteReader& reader) {
  Struct value;
  reader.copy_to(std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

std::size_t encoded_size(const std::string& name, const TableFile& file) {
  return sizeof(TableFileHeader) + name.size() +
         sizeof(TableExtent) * (file.copies[0].size() + file.copies[1].size());
}

struct ChangeSize {
  std::size_t operator()(const SetOwner&) const { return 3 * sizeof(std::uint32_t); }
  std::size_t operator()(const PutFile& put) const { return encoded_size(put.name, put.file); }
  std::size_t operator()(const RemoveFile& remove) const { return 2 + remove.name.size(); }
  std::size_t operator()(const RenameFile& rename) const {
    return 4 + rename.before.size() + rename.after.size();
  }
};

void encode_file(ByteWriter& writer, const std::string& name, const TableFile& file) {
  put_struct(writer,
             TableFileHeader{.serial = file.serial,
                             .length_bytes = file.length_bytes,
                             .block_count = file.block_count,
                             .name_bytes = static_cast<std::uint16_t>(name.size()),
                             .flags = file.mirrored ? kTableFileMirrored : std::uint16_t{0},
                             .extent_count = {static_cast<std::uint32_t>(file.copies[0].size()),
                                              static_cast<std::uint32_t>(file.copies[1].size())}});
  writer.text(name);
  for (const auto& copy : file.copies) {
    for (const UnitExtent& extent : copy) {
      put_struct(writer, TableExtent{.first_unit = extent.first, .unit_count = extent.count});
    }
  }
}

bool decode_file(ByteReader& reader, std::string& name, TableFile& file) {
  const auto header = get_struct<TableFileHeader>(reader);
  if (!reader.ok() || header.name_bytes == 0 || header.name_bytes > kTableNameBytesMax ||
      (header.flags & ~kTableFileMirrored) != 0) {
    return false;
  }
  name = std::string(reader.text(header.name_bytes));
  file.serial = header.serial;
  file.length_bytes = header.length_bytes;
  file.block_count = header.block_count;
  file.mirrored = (header.flags & kTableFileMirrored) != 0;
  for (std::size_t copy = 0; copy < 2; ++copy) {
    if (header.extent_count[copy] > reader.remaining() / sizeof(TableExtent)) return false;
    file.copies[copy].reserve(header.extent_count[copy]);
    for (std::uint32_t i = 0; i < header.extent_count[copy]; ++i) {
      const auto extent = get_struct<TableExtent>(reader);
      file.copies[copy].push_back({extent.first_unit, extent.unit_count});
    }
  }
  return reader.ok();
}

struct ChangeEncoder {
  ByteWriter& writer;

  void operator()(const SetOwner& change) {
    writer.put(TableChangeKind::set_owner);
    writer.u32(change.chunk.value);
    writer.u32(change.before.encoded());
    writer.u32(change.after.encoded());
  }
  void operator()(const PutFile& change) {
    writer.put(TableChangeKind::put_file);
    encode_file(writer, change.name, change.file);
  }
  void operator()(const RemoveFile& change) {
    writer.put(TableChangeKind::remove_file);
    writer.prefixed_text<std::uint16_t>(change.name);
  }
  void operator()(const RenameFile& change) {
    writer.put(TableChangeKind::rename_file);
    writer.prefixed_text<std::uint16_t>(change.before);
    writer.prefixed_text<std::uint16_t>(change.after);
  }
};

std::optional<TableChange> decode_change(ByteReader& reader) {
  switch (reader.get<TableChangeKind>()) {
    case TableChangeKind::set_owner: {
      SetOwner change;
      change.chunk = reader.get<ChunkIndex>();
      change.before = ChunkOwner::from_encoded(reader.u32());
      change.after = ChunkOwner::from_encoded(reader.u32());
      return change;
    }
    case TableChangeKind::put_file: {
      PutFile change;
      if (!decode_file(reader, change.name, change.file)) return std::nullopt;
      return change;
    }
    case TableChangeKind::remove_file: {
      RemoveFile change;
      change.name = std::string(reader.prefixed_text<std::uint16_t>(kTableNameBytesMax));
      return change;
    }
    case TableChangeKind::rename_file: {
      RenameFile change;
      change.before = std::string(reader.prefixed_text<std::uint16_t>(kTableNameBytesMax));
      change.after = std::string(reader.prefixed_text<std::uint16_t>(kTableNameBytesMax));
      return change;
    }
  }
  return std::nullopt;
}

bool geometry_is_sane(const TableSnapshotHeader& header) {
  return header.unit_bytes >= kBlockBytes && header.unit_bytes % kBlockBytes == 0 &&
         header.chunk_bytes >= header.unit_bytes && header.chunk_bytes % header.unit_bytes == 0 &&
         header.chunk_bytes / header.unit_bytes <= 0xffffffffu &&
         header.chunk_bytes / header.unit_bytes * header.chunk_count <= 0xffffffffu;
}

}  // namespace

std::uint64_t device_hash(std::span<const std::byte, 16> device_uuid) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const std::byte byte : device_uuid) {
    hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3u;
  }
  return hash;
}

std::vector<std::byte> encode_snapshot(const TableState& state) {
  std::size_t size = sizeof(TableSnapshotHeader) + kOwnerBytes * state.owners.size();
  for (const auto& [name, file] : state.files) size += encoded_size(name, file);
  std::vector<std::byte> payload(size);
  ByteWriter writer(payload);
  put_struct(writer,
             TableSnapshotHeader{.chunk_bytes = state.chunk_bytes,
                                 .chunk_count = static_cast<std::uint32_t>(state.owners.size()),
                                 .unit_bytes = state.unit_bytes,
                                 .next_serial = state.next_serial,
                                 .file_count = static_cast<std::uint32_t>(state.files.size()),
                                 .reserved = 0});
  for (const ChunkOwner& owner : state.owners) writer.u32(owner.encoded());
  for (const auto& [name, file] : state.files) encode_file(writer, name, file);
  SARSEN_ASSERT(writer.ok() && writer.remaining() == 0, "a snapshot has the size that was counted");
  return payload;
}

Result<TableState> decode_snapshot(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  const auto header = get_struct<TableSnapshotHeader>(reader);
  if (!reader.ok() || header.reserved != 0 || !geometry_is_sane(header) ||
      header.chunk_count > reader.remaining() / kOwnerBytes) {
    return malformed("snapshot header");
  }
  TableState state;
  state.chunk_bytes = header.chunk_bytes;
  state.unit_bytes = header.unit_bytes;
  state.next_serial = header.next_serial;
  state.owners.reserve(header.chunk_count);
  for (std::uint32_t i = 0; i < header.chunk_count; ++i) {
    state.owners.push_back(ChunkOwner::from_encoded(reader.u32()));
  }
  for (std::uint32_t i = 0; i < header.file_count; ++i) {
    std::string name;
    TableFile file;
    if (!decode_file(reader, name, file)) return malformed("file in a snapshot");
    if (!state.files.empty() && name <= state.files.rbegin()->first) {
      return malformed("snapshot: file names out of order");
    }
    state.files.emplace_hint(state.files.end(), std::move(name), std::move(file));
  }
  if (!reader.finished()) return malformed("snapshot: bytes after its end");
  return state;
}

std::vector<std::byte> encode_changes(std::span<const TableChange> changes) {
  std::size_t size = sizeof(TableChangesHeader);
  for (const TableChange& change : changes) size += 1 + std::visit(ChangeSize{}, change);
  std::vector<std::byte> payload(size);
  ByteWriter writer(payload);
  put_struct(writer, TableChangesHeader{.change_count = static_cast<std::uint32_t>(changes.size()),
                                        .reserved = 0});
  for (const TableChange& change : changes) std::visit(ChangeEncoder{writer}, change);
  SARSEN_ASSERT(writer.ok() && writer.remaining() == 0, "changes have the size that was counted");
  return payload;
}

Result<std::vector<TableChange>> decode_changes(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  const auto header = get_struct<TableChangesHeader>(reader);
  if (!reader.ok() || header.reserved != 0) return malformed("changes header");
  std::vector<TableChange> changes;
  for (std::uint32_t i = 0; i < header.change_count; ++i) {
    auto change = decode_change(reader);
    if (!change || !reader.ok()) return malformed("change");
    changes.push_back(*std::move(change));
  }
  if (!reader.finished()) return malformed("changes: bytes after their end");
  return changes;
}

std::size_t record_size_bytes(std::size_t payload_bytes) {
  return round_up(sizeof(TableRecordHeader) + payload_bytes, kBlockBytes);
}

AlignedBuffer encode_record(const TableRecordIdentity& identity,
                            std::span<const std::byte> payload) {
  AlignedBuffer record(record_size_bytes(payload.size()));
  const TableRecordHeader header{.magic = kTableRecordMagic,
                                 .crc32c = 0,
                                 .device_hash = identity.device_hash,
                                 .generation = identity.generation,
                                 .index = identity.index,
                                 .payload_bytes = static_cast<std::uint32_t>(payload.size()),
                                 .kind = identity.kind,
                                 .version = kTableRecordVersion,
                                 .reserved0 = 0,
                                 .reserved1 = {}};
  std::memcpy(record.data(), &header, sizeof(header));
  if (!payload.empty()) {
    std::memcpy(record.data() + sizeof(header), payload.data(), payload.size());
  }
  const std::uint32_t checksum = crc32c(record.span().subspan(kRecordChecksummedFrom));
  std::memcpy(record.data() + offsetof(TableRecordHeader, crc32c), &checksum, sizeof(checksum));
  return record;
}

std::optional<TableRecordView> parse_record(std::span<const std::byte> bytes,
                                            std::uint64_t device_hash) {
  TableRecordHeader header;
  if (bytes.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != kTableRecordMagic || header.version != kTableRecordVersion ||
      header.device_hash != device_hash || header.reserved0 != 0 || header.reserved1[0] != 0 ||
      header.reserved1[1] != 0 || header.reserved1[2] != 0 ||
      record_size_bytes(header.payload_bytes) > bytes.size()) {
    return std::nullopt;
  }
  const std::size_t size_bytes = record_size_bytes(header.payload_bytes);
  if (header.crc32c !=
      crc32c(bytes.subspan(kRecordChecksummedFrom, size_bytes - kRecordChecksummedFrom))) {
    return std::nullopt;
  }
  return TableRecordView{.identity = {.device_hash = header.device_hash,
                                      .generation = header.generation,
                                      .index = header.index,
                                      .kind = header.kind},
                         .payload = bytes.subspan(sizeof(header), header.payload_bytes),
                         .size_bytes = size_bytes};
}

}  // namespace sarsen
