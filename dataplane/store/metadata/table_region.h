// One of the two regions of the device table: a snapshot and the records appended after it, kept at
// two places (mirrors) of the device.
//
// Shard       none; used under DeviceTable's mutex. Calls block.
// Borrows     the disk.
// Invariants  I-META-3 record i+1 is written only after record i is durable on both mirrors. So a
//                      record that is bad on both mirrors and followed by a valid one was durable
//                      once: it is corrupt, never the end.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "dataplane/runtime/env.h"
#include "dataplane/store/metadata/aligned_buffer.h"
#include "dataplane/store/metadata/table_codec.h"

namespace sarsen {

// What a region holds, as far as its two mirrors together tell.
struct TableRegionScan {
  struct Record {
    TableRecordKind kind = TableRecordKind::changes;
    std::vector<std::byte> payload;
  };
  struct Repair {
    std::size_t mirror = 0;
    std::uint64_t offset = 0;
    std::size_t size_bytes = 0;
  };

  // Of the newest snapshot that is valid in either mirror; 0 when there is none.
  std::uint64_t generation = 0;
  std::vector<Record> records;  // the snapshot first
  std::uint64_t end = 0;        // where the next record goes
  // Highest generation of a valid record that no valid snapshot precedes; 0 when there is none.
  std::uint64_t orphan_generation = 0;
  bool unreadable = false;      // some block of a mirror could not be read
  std::vector<Repair> repairs;  // good in the other mirror
  std::vector<Repair> blanks;   // unreadable, and nothing is there
  bool superseded() const {
    return !records.empty() && records.back().kind == TableRecordKind::superseded;
  }
};

class TableRegion {
 public:
  TableRegion(BlockingDisk& disk, std::array<ByteOffset, 2> mirrors, std::uint64_t region_bytes,
              std::uint64_t device_hash)
      : disk_(disk), mirrors_(mirrors), region_bytes_(region_bytes), device_hash_(device_hash) {}

  // Reads both mirrors whole. Errors: corrupt (I-META-3); io_error, when both mirrors cannot be
  // read at the place where the end would have to be; the disk's other errors (device_gone).
  Result<TableRegionScan> scan();
  // Copies what was bad in one mirror from the other, and overwrites what was unreadable behind the
  // end. Not durable before the next flush.
  Result<void> repair(const TableRegionScan& scan);
  // Frees the memory that scan() left for repair().
  void forget();
  // Writes a record at `offset` of both mirrors. Not durable before the next flush.
  Result<void> write(std::uint64_t offset, std::span<const std::byte> record);
  // The same, one mirror after the other, each durable before the next is touched: for a record
  // that may be durable on either already.
  Result<void> write_again(std::uint64_t offset, std::span<const std::byte> record);
  // Overwrites both mirrors with zeros. Not durable before the next flush.
  Result<void> erase();

  std::uint64_t size_bytes() const { return region_bytes_; }

 private:
  // A mirror in memory, and which of its blocks could be read.
  struct Image {
    AlignedBuffer bytes;
    std::vector<bool> readable;
  };
  Result<Image> load(std::size_t mirror);
  std::optional<TableRecordView> parse(const Image& image, std::uint64_t offset) const;
  std::optional<TableRecordView> parse_snapshot(std::uint64_t& generation) const;
  void read_records(TableRegionScan& scan);
  Result<void> check_end(TableRegionScan& scan) const;

  BlockingDisk& disk_;
  std::array<ByteOffset, 2> mirrors_;
  std::uint64_t region_bytes_;
  std::uint64_t device_hash_;
  std::array<Image, 2> images_;  // from scan() to forget()
};

}  // namespace sarsen
