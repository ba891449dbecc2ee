#include "dataplane/runtime/uring/posix_blocking_disk.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <errno.h>
#include <unistd.h>

namespace sarsen {
namespace {

struct FreeDeleter {
  void operator()(void* memory) const { std::free(memory); }
};
using AlignedMemory = std::unique_ptr<std::byte, FreeDeleter>;

bool is_aligned(const std::byte* data) {
  return reinterpret_cast<std::uintptr_t>(data) % kBlockBytes == 0;
}

Result<AlignedMemory> bounce_buffer(std::uint64_t size) {
  AlignedMemory memory(static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, size)));
  if (memory) return memory;
  return fail(make_error(RuntimeError::out_of_memory,
                         "a bounce buffer of " + std::to_string(size) + " bytes"));
}

// `call` moves a piece; repeated until all is done. Gives 0 or an errno value.
template <typename Call>
int transfer_all(ByteOffset offset, std::uint64_t size, Call call) {
  std::uint64_t done = 0;
  while (done < size) {
    const ssize_t moved = call(done, size - done, static_cast<off_t>(offset.value + done));
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0) return errno;
    // Direct I/O goes on at a block's start.
    const std::uint64_t whole = round_down(static_cast<std::uint64_t>(moved), kBlockBytes);
    if (whole == 0) return EIO;
    done += whole;
  }
  return 0;
}

}  // namespace

PosixBlockingDisk::~PosixBlockingDisk() {
  close(descriptor_);
}

Result<void> PosixBlockingDisk::check_range(ByteOffset offset, std::uint64_t size) const {
  if (offset.value % kBlockBytes == 0 && size % kBlockBytes == 0 && size <= info().size_bytes &&
      offset.value <= info().size_bytes - size) {
    return {};
  }
  return fail(make_error(RuntimeError::bad_argument,
                         std::to_string(size) + " bytes at " + std::to_string(offset.value) +
                             " of " + info().name + ": not blocks of its " +
                             std::to_string(info().size_bytes) + " bytes"));
}

Result<void> PosixBlockingDisk::outcome(int errno_value, const char* verb, ByteOffset offset,
                                        std::uint64_t size) const {
  if (errno_value == 0) return {};
  return fail(error_from_errno(errno_value, std::string(verb) + " of " + std::to_string(size) +
                                                " bytes at " + std::to_string(offset.value) +
                                                " of " + info().name));
}

Result<void> PosixBlockingDisk::read(ByteOffset offset, std::span<std::byte> into) {
  SARSEN_TRY(check_range(offset, into.size()));
  if (!is_aligned(into.data())) return read_bounced(offset, into);
  const int error =
      transfer_all(offset, into.size(), [&](std::uint64_t at, std::uint64_t left, off_t place) {
        return pread(descriptor_, into.data() + at, left, place);
      });
  return outcome(error, "read", offset, into.size());
}

Result<void> PosixBlockingDisk::read_bounced(ByteOffset offset, std::span<std::byte> into) {
  const auto bounce = bounce_buffer(std::min<std::uint64_t>(into.size(), kBounceBytesMax));
  if (!bounce) return fail(bounce.error());
  const int error =
      transfer_all(offset, into.size(), [&](std::uint64_t at, std::uint64_t left, off_t place) {
        const std::uint64_t size = std::min(left, kBounceBytesMax);
        const ssize_t moved = pread(descriptor_, bounce->get(), size, place);
        if (moved > 0) std::memcpy(into.data() + at, bounce->get(), static_cast<size_t>(moved));
        return moved;
      });
  return outcome(error, "read", offset, into.size());
}

Result<void> PosixBlockingDisk::write(ByteOffset offset, std::span<const std::byte> from) {
  SARSEN_TRY(check_range(offset, from.size()));
  if (!is_aligned(from.data())) return write_bounced(offset, from);
  const int error =
      transfer_all(offset, from.size(), [&](std::uint64_t at, std::uint64_t left, off_t place) {
        return pwrite(descriptor_, from.data() + at, left, place);
      });
  return outcome(error, "write", offset, from.size());
}

Result<void> PosixBlockingDisk::write_bounced(ByteOffset offset, std::span<const std::byte> from) {
  const auto bounce = bounce_buffer(std::min<std::uint64_t>(from.size(), kBounceBytesMax));
  if (!bounce) return fail(bounce.error());
  const int error =
      transfer_all(offset, from.size(), [&](std::uint64_t at, std::uint64_t left, off_t place) {
        const std::uint64_t size = std::min(left, kBounceBytesMax);
        std::memcpy(bounce->get(), from.data() + at, size);
        return pwrite(descriptor_, bounce->get(), size, place);
      });
  return outcome(error, "write", offset, from.size());
}

Result<void> PosixBlockingDisk::flush() {
  while (fdatasync(descriptor_) != 0) {
    if (errno != EINTR) return fail(error_from_errno(errno, "flush " + info().name));
  }
  return {};
}

}  // namespace sarsen
