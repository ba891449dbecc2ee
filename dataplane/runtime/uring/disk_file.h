// DiskFile: one opened and claimed block device or regular file, from which every shard makes its
// Disk and the blocking threads make their BlockingDisk.
//
// Claim      OpenMode::exclusive keeps every other process (and every other DiskFile) out: O_EXCL
// on
//            a block device, which also refuses mounted and otherwise held ones; an OFD lock on a
//            file. Error overloaded names the device and says that somebody has it.
// Lifecycle  The claim lasts until the last DiskFile pointer is gone; disks hold one.
// Threads    Immutable after open; shared by shards.
#pragma once

#include <memory>
#include <string>

#include "dataplane/runtime/env.h"

namespace sarsen {

class Reactor;

enum class OpenMode {
  exclusive,  // read and write, claimed
  inspect,    // read only, unclaimed: what is read may change meanwhile
};

class DiskFile {
 public:
  // Errors: not_found, permission_denied, overloaded (claimed by another), bad_argument (neither
  // device nor file; no direct I/O; alignment above 4 KiB; smaller than a block), read_only.
  static Result<std::shared_ptr<DiskFile>> open(std::string path, OpenMode mode);
  ~DiskFile();
  DiskFile(const DiskFile&) = delete;
  DiskFile& operator=(const DiskFile&) = delete;

  const DiskInfo& info() const { return info_; }
  OpenMode mode() const { return mode_; }
  bool block_device() const { return block_device_; }
  // A new description of the same file with O_DIRECT, owned by the caller: errors of write-back are
  // reported to each description once, so nobody may share one with another who asks.
  Result<int> reopen() const;

 private:
  DiskFile() = default;
  Result<void> claim_file();
  Result<void> describe();
  Result<void> check_direct_io() const;

  DiskInfo info_;
  OpenMode mode_ = OpenMode::inspect;
  bool block_device_ = false;
  int descriptor_ = -1;
};

// A Disk of the shard of `reactor`; used and destroyed there, with nothing in flight.
Result<std::unique_ptr<Disk>> open_disk(std::shared_ptr<DiskFile> file, Reactor& reactor);
Result<std::unique_ptr<BlockingDisk>> open_blocking_disk(std::shared_ptr<DiskFile> file);

}  // namespace sarsen
