// The journalled table of a device: who owns each chunk of its data space, and the files of the
// metadata zone. The superblock holds only its roots (TableGeometry).
//
// Lifecycle   format() once; open(), then use, then destroy. Nothing to stop.
// Threads     thread-safe; every call blocks and may do I/O. Used from the metadata thread and from
//             RocksDB's background threads.
// Borrows     the disk.
// Bounded by  region_bytes: a snapshot and one record must fit (else table_full), so 4 bytes per
//             chunk and about 80 per metadata file.
// Durability  a call that changes the table returns after the change is durable on both mirrors.
//             A call that fails for the device leaves the table failed: every later change answers
//             the same error until the table is opened anew, because the record may be on the
//             media.
// Invariants  I-META-1, I-META-2 (table_state.h), I-META-3 (table_region.h), and
//             I-META-4 a snapshot of a higher generation is used only after it is durable on both
//                      mirrors; once its writing began, the older generation gets no record.
// Format      dataplane/docs/on_disk_format/device_table.md
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "dataplane/runtime/env.h"
#include "dataplane/store/metadata/table_region.h"
#include "dataplane/store/metadata/table_state.h"

namespace sarsen {

// Where the table is and what it describes. All offsets and sizes are multiples of kBlockBytes.
struct TableGeometry {
  std::array<std::byte, 16> device_uuid{};             // new at each format
  std::array<std::array<ByteOffset, 2>, 2> regions{};  // [region][mirror]
  std::uint64_t region_bytes = 0;
  ByteOffset chunk_area;
  std::uint64_t chunk_bytes = 0;         // fixed at format; a multiple of unit_bytes
  std::uint32_t chunk_count = 0;         // may grow between formats and openings, never shrink
  std::uint32_t unit_bytes = 64 * 1024;  // of metadata files; fixed at format
  // Chunks that only the metadata zone may take, so that compaction can always run. Not stored.
  std::uint32_t metadata_reserve_chunks = 0;
};

struct TableStats {
  std::uint64_t generation = 0;
  std::uint64_t bytes_written = 0;
  std::uint64_t records_written = 0;
  std::uint64_t snapshots_written = 0;
  std::uint64_t flushes = 0;
  std::uint64_t repairs = 0;  // records copied from their good mirror
  std::uint32_t chunks_free = 0;
  std::uint32_t chunks_metadata = 0;
};

class DeviceTable {
 public:
  // Region size that leaves room for `metadata_file_count` files and for hundreds of records.
  static std::uint64_t recommended_region_bytes(std::uint32_t chunk_count,
                                                std::uint32_t metadata_file_count = 1024);
  // Overwrites all four ranges. Errors: bad_geometry, the disk's.
  static Result<void> format(BlockingDisk& disk, const TableGeometry& geometry);
  // Heals bad mirrors and makes durable what it found, before it returns. Errors: not_found (no
  // snapshot anywhere), corrupt, bad_geometry, the disk's.
  static Result<std::unique_ptr<DeviceTable>> open(BlockingDisk& disk,
                                                   const TableGeometry& geometry);

  DeviceTable(const DeviceTable&) = delete;
  DeviceTable& operator=(const DeviceTable&) = delete;

  // The lowest free chunk. Errors: no_space (lanes cannot take the metadata reserve), the disk's.
  Result<ChunkIndex> grant_chunk(ChunkOwner owner);
  // Errors: bad_request, when `owner` does not own it; the disk's.
  Result<void> return_chunk(ChunkIndex chunk, ChunkOwner owner);
  // Error: bad_request, when the chunk does not exist.
  Result<ByteOffset> chunk_offset(ChunkIndex chunk) const;
  std::vector<ChunkOwner> owners() const;

  // File changes, applied in order, all or nothing. For MetadataFiles; I-META-2 is its duty.
  Result<void> commit(std::vector<TableChange> changes);
  TableState state() const;

  const TableGeometry& geometry() const { return geometry_; }
  TableStats stats() const;

 private:
  DeviceTable(BlockingDisk& disk, const TableGeometry& geometry);

  Result<void> load();
  Result<void> choose_region(std::array<TableRegionScan, 2>& scans);
  Result<void> replay(const TableRegionScan& scan);
  Result<void> heal(std::array<TableRegionScan, 2>& scans);
  bool prove_last_record(const TableRegionScan& scan);
  static void apply_all(TableState& state, std::span<const TableChange> changes);
  Result<void> commit_locked(std::span<const TableChange> changes);
  Result<void> append_locked(std::span<const std::byte> payload);
  Result<void> switch_region_locked(const TableState& next);
  Result<void> flush_locked();
  Unexpected failed_locked(Error error);

  BlockingDisk& disk_;
  const TableGeometry geometry_;
  const std::uint64_t device_hash_;

  mutable std::mutex mutex_;
  std::array<TableRegion, 2> regions_;
  TableState state_;
  std::size_t active_ = 0;  // region
  std::uint64_t generation_ = 0;
  std::uint64_t next_index_ = 0;
  std::uint64_t end_ = 0;  // where the next record goes in the active region
  std::optional<Error> failure_;
  TableStats stats_;
};

}  // namespace sarsen
