// Named files in the metadata zone: what RocksDB needs of a file system, without RocksDB.
//
// Lifecycle   open(), use, destroy after every reader and writer is gone.
// Threads     thread-safe; a reader may be used by many threads, a writer by one. Calls block.
// Borrows     the disk and the device table; both outlive it.
// Contents    A file is appended to, never rewritten. Its blocks carry checksum, serial and index
//             (table_format.h), so that bad, misdirected and stale blocks are found. `mirrored`
//             files are kept twice, far apart; a bad copy is healed from the other when the file is
//             opened. Other files have one copy: a bad block answers `corrupt` and is listed in
//             damage().
// Durability  sync(): blocks written, device flushed, then the table record with the new length. So
//             no record names data that is not there. A reader sees what was synced. rename() is
//             durable and atomic when it returns. remove() is durable with the next change; a crash
//             before that brings the file back whole.
// Space       units of metadata chunks, granted by the table on demand. Units of a removed file are
//             free again when the record that dropped them is durable and nobody reads the file.
// Bounded by  mirrored files are read whole into memory when opened (a MANIFEST has 128 KiB).
// Invariants  I-META-2 (table_state.h) and
//             I-META-5 a block that was synced is never written again before its file is dropped:
//                      each sync seals the block that it ends in.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/store/metadata/device_table.h"
#include "dataplane/store/metadata/file_blocks.h"
#include "dataplane/store/metadata/unit_space.h"

namespace sarsen {

class FileReader;
class FileWriter;

struct MetadataFileStats {
  std::uint64_t bytes_written = 0;  // of file blocks, all copies; the table counts its own
  std::uint64_t bytes_read = 0;
  std::uint64_t syncs = 0;
  std::uint64_t blocks_healed = 0;
  std::uint64_t blocks_bad = 0;  // single-copy blocks that failed their checks, each time
  std::uint64_t free_bytes = 0;  // in chunks that the zone has
};

struct DamagedBlock {
  std::string file;
  std::uint32_t block_index = 0;
  auto operator<=>(const DamagedBlock&) const = default;
};

class MetadataFiles {
 public:
  static std::unique_ptr<MetadataFiles> open(BlockingDisk& disk, DeviceTable& table);
  ~MetadataFiles();
  MetadataFiles(const MetadataFiles&) = delete;
  MetadataFiles& operator=(const MetadataFiles&) = delete;

  // A new file; one of the same name is removed first.
  std::unique_ptr<FileWriter> create(const std::string& name, bool mirrored);
  // Errors: not_found; for mirrored files also corrupt and the disk's.
  Result<std::unique_ptr<FileReader>> read(const std::string& name);
  // Error: not_found.
  Result<void> remove(const std::string& name);
  // `after` becomes this file; another one of that name is dropped in the same change.
  Result<void> rename(const std::string& before, const std::string& after);
  // Every file under `before` takes its name under `after`, and what was under `after` is dropped,
  // in one change. Files that were never synced stay as they are.
  Result<void> replace_all(std::string_view before, std::string_view after);
  // Bytes appended so far. Error: not_found.
  Result<std::uint64_t> length(const std::string& name) const;
  // Names that start with `prefix`, sorted, without it.
  std::vector<std::string> list(std::string_view prefix) const;

  // Takes chunks until `bytes` of contents can be written without asking for space again. Errors:
  // no_space, before anything is half done; the disk's.
  Result<void> reserve(std::uint64_t bytes);
  // Gives chunks that are wholly free back to the device, but one.
  Result<void> trim();

  std::uint32_t unit_bytes() const { return map_.unit_bytes; }
  MetadataFileStats stats() const;
  // Bad blocks met so far in files that exist, sorted; at most kDamageMax.
  std::vector<DamagedBlock> damage() const;
  static constexpr std::size_t kDamageMax = 1024;

 private:
  friend class FileReader;
  friend class FileWriter;

  struct Node {
    std::string name;
    TableFile durable;                               // as in the table, when in_table
    std::array<std::vector<UnitExtent>, 2> extents;  // all units, synced or not
    std::uint64_t serial = 0;
    std::uint64_t length_bytes = 0;  // appended
    bool mirrored = false;
    bool in_table = false;
    std::uint32_t handles = 0;
  };
  using NodePtr = std::shared_ptr<Node>;
  // A removed file whose units cannot be used yet.
  struct Dropped {
    NodePtr node;
    bool durably = false;  // no record names its units any more
  };

  MetadataFiles(BlockingDisk& disk, DeviceTable& table);

  std::vector<NodePtr> under_locked(std::string_view prefix) const;
  void drop_locked(const NodePtr& node);
  void forget_damage_locked(const std::string& name);
  void collect_locked();
  Result<void> commit_locked(std::vector<TableChange> changes);
  Result<void> grant_locked();
  // One more unit at the end of the node's copy.
  Result<void> extend_locked(Node& node, std::size_t copy);
  void release(const NodePtr& node);
  Result<void> sync(Node& node, std::uint32_t block_count);
  void note_damage(const std::string& file, std::uint32_t block_index);

  DeviceTable& table_;
  const UnitMap map_;

  mutable std::mutex mutex_;
  std::map<std::string, NodePtr, std::less<>> nodes_;
  std::list<Dropped> dropped_;
  std::vector<TableChange> pending_;  // removals that wait for the next record
  UnitSpace space_;
  std::uint64_t next_serial_ = 1;
  MetadataFileStats stats_;  // but for the two below
  std::atomic<std::uint64_t> bytes_written_{0};
  std::atomic<std::uint64_t> bytes_read_{0};  // counted without the mutex: reads never wait for it
  std::vector<DamagedBlock> damage_;
};

// Appends to one file. Not thread-safe. After an error every later call answers it.
class FileWriter {
 public:
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  // Errors: no_space, the disk's; bad_request, when a single-copy file was synced in mid-block.
  Result<void> append(std::span<const std::byte> data);
  // Everything appended is durable.
  Result<void> sync();
  std::uint64_t length_bytes() const { return length_bytes_; }

 private:
  friend class MetadataFiles;
  FileWriter(MetadataFiles& files, MetadataFiles::NodePtr node);
  Result<void> append_some(std::span<const std::byte>& data);
  void seal();
  Result<void> write_staged();
  Result<void> grow(std::uint32_t block_count);

  static constexpr std::uint32_t kStagedBlocks = 32;
  MetadataFiles& files_;
  MetadataFiles::NodePtr node_;
  AlignedBuffer staged_;
  std::uint32_t staged_sealed_ = 0;   // whole blocks in `staged_`
  std::uint32_t partial_bytes_ = 0;   // contents of the block after them
  std::uint32_t written_blocks_ = 0;  // on the device before `staged_`
  std::uint32_t capacity_blocks_ = 0;
  std::uint64_t length_bytes_ = 0;
  bool ended_in_mid_block_ = false;
  std::optional<Error> failure_;
};

// Reads one file as it was synced when the reader was made. Thread-safe.
class FileReader {
 public:
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  // Bytes read: fewer than asked only at the end. Errors: corrupt, the disk's.
  Result<std::size_t> read(std::uint64_t offset, std::span<std::byte> into) const;
  std::uint64_t length_bytes() const { return file_.length_bytes; }

 private:
  friend class MetadataFiles;
  FileReader(MetadataFiles& files, MetadataFiles::NodePtr node);
  Result<void> load_mirrored();
  Result<void> read_blocks(std::uint32_t first_block, std::span<std::byte> into) const;

  MetadataFiles& files_;
  MetadataFiles::NodePtr node_;
  const TableFile file_;
  std::vector<std::byte> contents_;  // of a mirrored file
};

}  // namespace sarsen
