// PosixBlockingDisk: BlockingDisk with pread, pwrite and fdatasync on its own O_DIRECT descriptor.
//
// Memory   Need not be aligned: unaligned memory goes through a bounce buffer of at most
//          kBounceBytesMax. Offsets and sizes are multiples of kBlockBytes.
// Errors   io_error, device_gone, no_space, read_only, out_of_memory, bad_argument (range).
// Threads  Any number at a time.
#pragma once

#include <memory>

#include "dataplane/runtime/uring/disk_file.h"

namespace sarsen {

class PosixBlockingDisk final : public BlockingDisk {
 public:
  static constexpr std::uint64_t kBounceBytesMax = kMiB;

  // Takes over `descriptor`.
  PosixBlockingDisk(std::shared_ptr<DiskFile> file, int descriptor)
      : file_(std::move(file)), descriptor_(descriptor) {}
  ~PosixBlockingDisk() override;

  const DiskInfo& info() const override { return file_->info(); }
  Result<void> read(ByteOffset offset, std::span<std::byte> into) override;
  Result<void> write(ByteOffset offset, std::span<const std::byte> from) override;
  Result<void> flush() override;

 private:
  Result<void> check_range(ByteOffset offset, std::uint64_t size) const;
  Result<void> read_bounced(ByteOffset offset, std::span<std::byte> into);
  Result<void> write_bounced(ByteOffset offset, std::span<const std::byte> from);
  Result<void> outcome(int errno_value, const char* verb, ByteOffset offset,
                       std::uint64_t size) const;

  std::shared_ptr<DiskFile> file_;
  int descriptor_;
};

}  // namespace sarsen
