#include "dataplane/cli/overlay_disk.h"

#include <cstring>
#include <optional>
#include <string>

namespace sarsen {

Result<void> OverlayImage::read(ByteOffset offset, std::span<std::byte> into) {
  SARSEN_TRY(below_.read(offset, into));
  const std::lock_guard lock(mutex_);
  if (written_.empty()) return {};
  for (std::size_t done = 0; done < into.size(); done += kBlockBytes) {
    const auto found = written_.find((offset.value + done) / kBlockBytes);
    if (found != written_.end()) {
      std::memcpy(into.data() + done, found->second->data(), kBlockBytes);
    }
  }
  return {};
}

Result<void> OverlayImage::write(ByteOffset offset, std::span<const std::byte> from) {
  if (offset.value % kBlockBytes != 0 || from.size() % kBlockBytes != 0 ||
      offset.value > info().size_bytes || from.size() > info().size_bytes - offset.value) {
    return fail(make_error(RuntimeError::bad_argument, info().name + ": write at " +
                                                           std::to_string(offset.value) + " of " +
                                                           std::to_string(from.size())));
  }
  const std::lock_guard lock(mutex_);
  for (std::size_t done = 0; done < from.size(); done += kBlockBytes) {
    auto& block = written_[(offset.value + done) / kBlockBytes];
    if (!block) {
      if (written_.size() > blocks_max_) {  // with this one
        written_.erase((offset.value + done) / kBlockBytes);
        return fail(
            make_error(RuntimeError::no_space, "recovery would write more than " +
                                                   std::to_string(blocks_max_ * kBlockBytes) +
                                                   " bytes, which is what is kept in memory"));
      }
      block = std::make_unique<Block>();
    }
    std::memcpy(block->data(), from.data() + done, kBlockBytes);
  }
  return {};
}

void OverlayImage::clear() {
  const std::lock_guard lock(mutex_);
  written_.clear();
}

Result<void> OverlayDisk::perform(const DiskOperation& operation) {
  switch (operation.kind()) {
    case DiskOperationKind::read:
      return image_.read(operation.offset(), {operation.data(), operation.size()});
    case DiskOperationKind::write:
    case DiskOperationKind::write_durable:
      return image_.write(operation.offset(), {operation.data(), operation.size()});
    case DiskOperationKind::flush:
    case DiskOperationKind::discard: return {};
  }
  return {};
}

void OverlayDisk::submit(DiskOperation& operation) {
  const auto outcome = perform(operation);
  executor_.schedule(
      operation.finish(outcome ? std::nullopt : std::optional<Error>(outcome.error())));
}

}  // namespace sarsen
