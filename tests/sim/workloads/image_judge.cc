#include "tests/sim/workloads/image_judge.h"

#include <algorithm>
#include <utility>

#include "dataplane/client/error.h"

namespace sarsen::sim {

ImageJudge::Operation ImageJudge::begin_write(std::uint64_t client, AttachmentPointer attachment,
                                              BlockIndex first, std::uint64_t count, bool zeros) {
  Operation operation{.client = client, .attachment = std::move(attachment)};
  const model::WriteId id =
      zeros ? model_.begin_zero(first, count) : model_.begin_write(first, count);
  operation.id = id.value;
  operation.began_detached = operation.attachment->detached;
  if (operation.began_detached) {
    model_.refused(id);  // whoever reads it has read what must not be
  } else {
    open_writes_[client].push_back(id);
  }
  return operation;
}

void ImageJudge::fill(const Operation& operation, BlockIndex first,
                      std::span<std::byte> into) const {
  model::fill_blocks(into, model_.image(), first, model::WriteId(operation.id));
}

void ImageJudge::end_write(const Operation& operation, const Result<void>& result) {
  if (operation.began_detached) {
    if (result) simulator_.fail("a write that began after the detach was answered has succeeded");
    return;
  }
  const model::WriteId id(operation.id);
  // The detach, or a crash, has decided about it already.
  if (std::erase(open_writes_[operation.client], id) == 0) return;
  if (result) {
    model_.acknowledged(id);
  } else if (is(result.error(), RuntimeError::no_space)) {
    model_.refused(id);
  } else {
    model_.unknown(id);
    unresolved_[operation.client] = true;
    judge_error(result.error());
  }
}

ImageJudge::Operation ImageJudge::begin_read(std::uint64_t client, AttachmentPointer attachment,
                                             BlockIndex first, std::uint64_t count) {
  Operation operation{.client = client, .attachment = std::move(attachment)};
  operation.began_detached = operation.attachment->detached;
  const model::ReadId id = model_.begin_read(first, count);
  operation.id = id.value;
  open_reads_[client].push_back(id);
  return operation;
}

void ImageJudge::end_read(const Operation& operation, const Result<void>& result,
                          std::span<const std::byte> bytes) {
  const model::ReadId id(operation.id);
  if (std::erase(open_reads_[operation.client], id) == 0) return;
  if (!result) {
    model_.forget_read(id);
    return judge_error(result.error());
  }
  if (operation.began_detached) {
    simulator_.fail("a read that began after the detach was answered has succeeded");
  }
  if (const auto violation = model_.end_read(id, bytes)) simulator_.fail(*violation);
}

// No device fails here: a block device must not see an error because something was restarted.
void ImageJudge::judge_error(const Error& error) {
  if (is(error, ClientError::fenced) || is(error, ClientError::stopped)) return;
  if (is(error, RuntimeError::no_space)) return;
  simulator_.fail("an operation ended with an error: " + error.message());
}

void ImageJudge::check_sector(Sector& sector, std::uint64_t least, std::uint64_t found) {
  if (found < least || found > sector.sent) {
    simulator_.fail("a sector holds " + std::to_string(found) + ", and not one of " +
                    std::to_string(least) + " to " + std::to_string(sector.sent));
  }
  sector.seen = std::max(sector.seen, found);
}

void ImageJudge::client_crashed(std::uint64_t client) {
  for (const model::WriteId id : std::exchange(open_writes_[client], {})) {
    model_.unknown(id);
    unresolved_[client] = true;
  }
  for (const model::ReadId id : std::exchange(open_reads_[client], {})) model_.forget_read(id);
}

void ImageJudge::client_returned(std::uint64_t client) {
  unresolved_[client] = false;
  resolve();
}

void ImageJudge::detach_answered(std::uint64_t client, GivenAttachment& attachment) {
  attachment.detached = true;
  for (const model::WriteId id : std::exchange(open_writes_[client], {})) model_.unknown(id);
  unresolved_[client] = false;
  resolve();
}

// The model resolves all unknown writes at once.
void ImageJudge::resolve() {
  if (std::ranges::none_of(unresolved_, [](bool one) { return one; })) model_.recovered();
}

}  // namespace sarsen::sim
