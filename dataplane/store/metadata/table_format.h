// The on-disk form of the device table and of the blocks of metadata files. Little-endian.
// Grammar, byte tables and a worked example: dataplane/docs/on_disk_format/device_table.md.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "dataplane/base/units.h"

namespace sarsen {

static_assert(std::endian::native == std::endian::little,
              "on-disk structs are copied as they lie in memory");

// ------------------------------------------------------------------------------- table records

inline constexpr std::uint32_t kTableRecordMagic = 0x31544453;  // "SDT1"
inline constexpr std::uint8_t kTableRecordVersion = 1;

enum class TableRecordKind : std::uint8_t {
  snapshot = 1,    // the whole table; always and only record 0 of a region
  changes = 2,     // a list of changes, applied together or not at all
  superseded = 3,  // the next generation is durable in the other region; always the last record
};

// A record is this header, `payload_bytes` of payload, and zeros to the next multiple of 4096.
struct TableRecordHeader {
  std::uint32_t magic;
  std::uint32_t crc32c;       // of everything after it, padding included
  std::uint64_t device_hash;  // FNV-1a-64 of the device uuid: another device's table never passes
  std::uint64_t generation;   // of the region; each snapshot has a higher one than all before it
  std::uint64_t index;        // of the record within its generation; the snapshot is 0
  std::uint32_t payload_bytes;
  TableRecordKind kind;
  std::uint8_t version;
  std::uint16_t reserved0;     // zero; checked
  std::uint64_t reserved1[3];  // zero; checked
};
static_assert(sizeof(TableRecordHeader) == 64 && alignof(TableRecordHeader) == 8);
static_assert(offsetof(TableRecordHeader, device_hash) == 8);
static_assert(offsetof(TableRecordHeader, generation) == 16);
static_assert(offsetof(TableRecordHeader, index) == 24);
static_assert(offsetof(TableRecordHeader, payload_bytes) == 32);
static_assert(offsetof(TableRecordHeader, kind) == 36);
static_assert(offsetof(TableRecordHeader, version) == 37);
static_assert(offsetof(TableRecordHeader, reserved1) == 40);

// Starts the payload of a snapshot; then chunk_count owners of 4 bytes, then file_count files.
struct TableSnapshotHeader {
  std::uint64_t chunk_bytes;
  std::uint32_t chunk_count;
  std::uint32_t unit_bytes;
  std::uint64_t next_serial;  // the serial that the next metadata file gets
  std::uint32_t file_count;
  std::uint32_t reserved;  // zero; checked
};
static_assert(sizeof(TableSnapshotHeader) == 32);

// One metadata file; then name_bytes of name, then extent_count[0] + extent_count[1] extents.
struct TableFileHeader {
  std::uint64_t serial;        // never reused; stands in every block of the file
  std::uint64_t length_bytes;  // durable length of the contents
  std::uint32_t block_count;   // durable blocks, the same in each copy
  std::uint16_t name_bytes;
  std::uint16_t flags;            // kTableFileMirrored
  std::uint32_t extent_count[2];  // the second is 0 unless mirrored
};
static_assert(sizeof(TableFileHeader) == 32);
inline constexpr std::uint16_t kTableFileMirrored = 1;

// Units are counted from the start of the chunk area.
struct TableExtent {
  std::uint32_t first_unit;
  std::uint32_t unit_count;
};
static_assert(sizeof(TableExtent) == 8);

// Owners: 0 is free, kOwnerMetadata the metadata zone, otherwise lane number + 1.
inline constexpr std::uint32_t kOwnerFree = 0;
inline constexpr std::uint32_t kOwnerMetadata = 0xffffffff;

// Starts the payload of a `changes` record; then the changes, each starting with its kind.
struct TableChangesHeader {
  std::uint32_t change_count;
  std::uint32_t reserved;  // zero; checked
};
static_assert(sizeof(TableChangesHeader) == 8);

enum class TableChangeKind : std::uint8_t {
  set_owner = 1,    // u32 chunk, u32 owner before, u32 owner after
  put_file = 2,     // a file as in the snapshot
  remove_file = 3,  // u16 length, name
  rename_file = 4,  // u16 length, name before, u16 length, name after
};

inline constexpr std::size_t kTableNameBytesMax = 255;

// ------------------------------------------------------------------------ blocks of metadata files

// Every block of a metadata file starts with this; `payload_bytes` of contents follow, then zeros.
// The checksum starts from the crc32c of the device uuid, so that a block of another device,
// another file or another place in the file never passes: misdirected, lost and stale writes are
// found.
struct FileBlockHeader {
  std::uint32_t crc32c;  // of the device uuid and bytes [4, 4096) of the block
  std::uint16_t payload_bytes;
  std::uint16_t version;
  std::uint64_t file_serial;
  std::uint32_t block_index;
  std::uint32_t reserved;  // zero; checked
};
static_assert(sizeof(FileBlockHeader) == 24);
static_assert(offsetof(FileBlockHeader, payload_bytes) == 4);
static_assert(offsetof(FileBlockHeader, file_serial) == 8);
static_assert(offsetof(FileBlockHeader, block_index) == 16);
inline constexpr std::uint16_t kFileBlockVersion = 1;
inline constexpr std::uint32_t kFileBlockPayloadBytes = kBlockBytes - sizeof(FileBlockHeader);
static_assert(kFileBlockPayloadBytes == 4072);

}  // namespace sarsen
