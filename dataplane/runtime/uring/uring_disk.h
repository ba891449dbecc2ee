// UringDisk: Disk on a raw block device or a regular file, O_DIRECT, one io_uring.
//
// Durability  write_durable is RWF_DSYNC (FUA where the device has it), or a plain write where the
//             device has no volatile cache; flush is fdatasync.
// Bounds      `in_flight_max` submissions; more operations wait in order of arrival.
// Transfers   Short ones are completed here; EINTR and EAGAIN are tried again `attempts_max` times.
// Memory      In the shard's BufferArena it is transferred without pinning pages.
// Errors      io_error, device_gone, no_space, read_only, bad_argument (a range outside of the disk
//             or not made of blocks: it may come from a corrupt record), overloaded.
// Lifecycle   Dies on its shard with nothing in flight (assert).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dataplane/runtime/uring/disk_file.h"
#include "dataplane/runtime/uring/ring_operation.h"

namespace sarsen {

struct UringDiskLimits {
  std::uint32_t in_flight_max = 256;
  std::uint32_t attempts_max = 16;
  std::uint64_t transfer_bytes_max = kGiB;  // of one submission; at most 2 GiB - 4 KiB
};

class UringDisk final : public Disk {
 public:
  // Takes over `descriptor`.
  UringDisk(std::shared_ptr<DiskFile> file, int descriptor, Reactor& reactor,
            UringDiskLimits limits = {});
  ~UringDisk() override;

  const DiskInfo& info() const override { return file_->info(); }

 private:
  // One submission at a time for one operation.
  struct Transfer final : RingCompletion {
    void complete(std::int32_t result, std::uint32_t flags) override;
    UringDisk* disk = nullptr;
    DiskOperation* operation = nullptr;
    std::uint64_t bytes_done = 0;
    std::uint32_t attempts = 0;
    Transfer* next_free = nullptr;
  };

  void submit(DiskOperation& operation) override;
  void withdraw(DiskOperation& operation) override;

  std::optional<Error> refuse(const DiskOperation& operation) const;
  bool nothing_to_do(const DiskOperation& operation) const;
  void start(DiskOperation& operation, Transfer& transfer);
  void send(Transfer& transfer);
  void prepare(const Transfer& transfer, io_uring_sqe& entry) const;
  void prepare_transfer(const Transfer& transfer, io_uring_sqe& entry) const;
  void prepare_discard(const DiskOperation& operation, io_uring_sqe& entry) const;
  void on_complete(Transfer& transfer, std::int32_t result);
  bool try_again(Transfer& transfer, std::int32_t result);
  void finish(Transfer& transfer, std::optional<Error> error);
  std::string describe(const DiskOperation& operation) const;

  std::shared_ptr<DiskFile> file_;
  RingFile ring_file_;
  Reactor& reactor_;
  UringDiskLimits limits_;
  std::vector<Transfer> transfers_;
  Transfer* free_ = nullptr;
  std::uint32_t in_flight_ = 0;
  IntrusiveList<DiskOperation> waiting_;
  // Discards of a block device by its own command (Linux 6.12), else by punching a hole.
  bool discard_by_command_;
};

}  // namespace sarsen
