#include "dataplane/runtime/uring/uring_disk.h"

#include <algorithm>

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <linux/ioctl.h>

namespace sarsen {
namespace {

// BLOCK_URING_CMD_DISCARD of <linux/blkdev.h> (Linux 6.12), not in Debian 12's headers.
constexpr std::uint32_t kBlockCommandDiscard = _IO(0x12, 0);

const char* name_of(DiskOperationKind kind) {
  switch (kind) {
    case DiskOperationKind::read: return "read";
    case DiskOperationKind::write: return "write";
    case DiskOperationKind::write_durable: return "durable write";
    case DiskOperationKind::flush: return "flush";
    case DiskOperationKind::discard: return "discard";
  }
  return "operation";
}

bool moves_data(DiskOperationKind kind) {
  return kind == DiskOperationKind::read || kind == DiskOperationKind::write ||
         kind == DiskOperationKind::write_durable;
}

bool is_block_multiple(std::uint64_t value) {
  return value % kBlockBytes == 0;
}

}  // namespace

UringDisk::UringDisk(std::shared_ptr<DiskFile> file, int descriptor, Reactor& reactor,
                     UringDiskLimits limits)
    : file_(std::move(file)),
      ring_file_(reactor, descriptor),
      reactor_(reactor),
      limits_(limits),
      transfers_(limits.in_flight_max),
      discard_by_command_(file_->block_device()) {
  for (Transfer& transfer : transfers_) {
    transfer.disk = this;
    transfer.next_free = std::exchange(free_, &transfer);
  }
}

UringDisk::~UringDisk() {
  SARSEN_ASSERT(in_flight_ == 0 && waiting_.empty(), "a disk is closed after its I/O has ended");
}

void UringDisk::withdraw(DiskOperation&) {
  SARSEN_ASSERT(false, "the frame of an I/O dies after the I/O");
}

void UringDisk::submit(DiskOperation& operation) {
  if (auto error = refuse(operation); error || nothing_to_do(operation)) {
    reactor_.schedule(operation.finish(std::move(error)));
    return;
  }
  if (free_ == nullptr) {
    waiting_.push_back(operation);
    return;
  }
  Transfer& transfer = *std::exchange(free_, free_->next_free);
  ++in_flight_;
  start(operation, transfer);
}

void UringDisk::start(DiskOperation& operation, Transfer& transfer) {
  transfer.operation = &operation;
  transfer.bytes_done = 0;
  transfer.attempts = 0;
  send(transfer);
}

void UringDisk::send(Transfer& transfer) {
  reactor_.submit(transfer, [&](io_uring_sqe& entry) { prepare(transfer, entry); });
}

std::optional<Error> UringDisk::refuse(const DiskOperation& operation) const {
  const std::uint64_t offset = operation.offset().value;
  const std::uint64_t size = operation.size();
  const char* reason = nullptr;
  if (!is_block_multiple(offset) || !is_block_multiple(size) ||
      !is_block_multiple(reinterpret_cast<std::uintptr_t>(operation.data()))) {
    reason = "not made of blocks of 4096 bytes";
  } else if (size > info().size_bytes || offset > info().size_bytes - size) {
    reason = "outside of the disk";
  }
  if (reason != nullptr) {
    return make_error(RuntimeError::bad_argument, describe(operation) + ": " + reason);
  }
  if (file_->mode() == OpenMode::inspect && operation.kind() != DiskOperationKind::read) {
    return make_error(RuntimeError::read_only, describe(operation) + ": opened to inspect");
  }
  return std::nullopt;
}

bool UringDisk::nothing_to_do(const DiskOperation& operation) const {
  if (operation.kind() == DiskOperationKind::flush) return false;
  // A discard that the device cannot do leaves what was there, which is unspecified enough.
  return operation.size() == 0 ||
         (operation.kind() == DiskOperationKind::discard && !info().can_discard);
}

void UringDisk::prepare(const Transfer& transfer, io_uring_sqe& entry) const {
  const DiskOperation& operation = *transfer.operation;
  if (operation.kind() == DiskOperationKind::flush) {
    io_uring_prep_fsync(&entry, -1, IORING_FSYNC_DATASYNC);
  } else if (operation.kind() == DiskOperationKind::discard) {
    prepare_discard(operation, entry);
  } else {
    prepare_transfer(transfer, entry);
  }
  ring_file_.select(entry);
}

void UringDisk::prepare_transfer(const Transfer& transfer, io_uring_sqe& entry) const {
  const DiskOperation& operation = *transfer.operation;
  std::byte* const data = operation.data() + transfer.bytes_done;
  const auto size = static_cast<unsigned>(
      std::min(operation.size() - transfer.bytes_done, limits_.transfer_bytes_max));
  const std::uint64_t offset = operation.offset().value + transfer.bytes_done;
  const int buffer = reactor_.fixed_buffer_index(data, size);
  if (operation.kind() == DiskOperationKind::read) {
    if (buffer >= 0) {
      io_uring_prep_read_fixed(&entry, -1, data, size, offset, buffer);
    } else {
      io_uring_prep_read(&entry, -1, data, size, offset);
    }
    return;
  }
  if (buffer >= 0) {
    io_uring_prep_write_fixed(&entry, -1, data, size, offset, buffer);
  } else {
    io_uring_prep_write(&entry, -1, data, size, offset);
  }
  if (operation.kind() == DiskOperationKind::write_durable && info().volatile_cache) {
    entry.rw_flags = RWF_DSYNC;
  }
}

void UringDisk::prepare_discard(const DiskOperation& operation, io_uring_sqe& entry) const {
  if (discard_by_command_) {
    io_uring_prep_rw(IORING_OP_URING_CMD, &entry, -1, nullptr, 0, 0);
    entry.cmd_op = kBlockCommandDiscard;
    entry.addr = operation.offset().value;
    entry.addr3 = operation.size();
    return;
  }
  io_uring_prep_fallocate(&entry, -1, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                          static_cast<__off64_t>(operation.offset().value),
                          static_cast<__off64_t>(operation.size()));
}

void UringDisk::Transfer::complete(std::int32_t result, std::uint32_t) {
  disk->on_complete(*this, result);
}

void UringDisk::on_complete(Transfer& transfer, std::int32_t result) {
  const DiskOperation& operation = *transfer.operation;
  if (result < 0) {
    if (!try_again(transfer, result))
      finish(transfer, error_from_errno(-result, describe(operation)));
    return;
  }
  if (!moves_data(operation.kind())) return finish(transfer, std::nullopt);

  // A transfer that ended inside a block goes on from the block's start: direct I/O is in blocks.
  const std::uint64_t moved = static_cast<std::uint64_t>(result);
  transfer.bytes_done += moved;
  if (transfer.bytes_done >= operation.size()) return finish(transfer, std::nullopt);
  if (moved < kBlockBytes && ++transfer.attempts > limits_.attempts_max) {
    return finish(transfer, error_from_errno(EIO, describe(operation)));
  }
  transfer.bytes_done = round_down(transfer.bytes_done, kBlockBytes);
  send(transfer);
}

bool UringDisk::try_again(Transfer& transfer, std::int32_t result) {
  const bool discard = transfer.operation->kind() == DiskOperationKind::discard;
  if (discard && (result == -EOPNOTSUPP || result == -EINVAL) && discard_by_command_) {
    discard_by_command_ = false;  // a kernel before 6.12
  } else if (discard && result == -EOPNOTSUPP) {
    finish(transfer, std::nullopt);  // "unspecified" includes what was there
    return true;
  } else if ((result != -EINTR && result != -EAGAIN) ||
             ++transfer.attempts > limits_.attempts_max) {
    return false;
  }
  send(transfer);
  return true;
}

void UringDisk::finish(Transfer& transfer, std::optional<Error> error) {
  DiskOperation& operation = *transfer.operation;
  if (waiting_.empty()) {
    transfer.operation = nullptr;
    transfer.next_free = std::exchange(free_, &transfer);
    --in_flight_;
  } else {
    start(waiting_.pop_front(), transfer);
  }
  // Last: the waiter may end the operation and more.
  reactor_.resume(operation.finish(std::move(error)));
}

std::string UringDisk::describe(const DiskOperation& operation) const {
  return std::string(name_of(operation.kind())) + " of " + std::to_string(operation.size()) +
         " bytes at " + std::to_string(operation.offset().value) + " of " + info().name;
}

}  // namespace sarsen
