#include <algorithm>

#include "dataplane/mon/machine/rules.h"
#include "dataplane/placement/map_bounds.h"

namespace sarsen::rules {
namespace {

const char* name_of(AttachMode mode) {
  switch (mode) {
    case AttachMode::single_writer: return "single writer";
    case AttachMode::multi_writer: return "one of several writers";
    case AttachMode::read_only: return "reader";
  }
  return "?";
}

std::string describe(const AttachmentEntry& attachment) {
  return "holder " + std::to_string(attachment.holder.value) + " as " + name_of(attachment.mode) +
         " (attach epoch " + std::to_string(attachment.epoch.value) + ")";
}

std::string title(const ImageEntry& image) {
  return "image " + image.name;
}

// I-MON-1. `holder` itself does not count.
Result<void> check_other_holders(const ImageEntry& image, HolderId holder, AttachMode mode) {
  for (const AttachmentEntry& other : image.attachments) {
    if (other.holder == holder) continue;
    if (other.mode == AttachMode::single_writer || mode == AttachMode::single_writer) {
      return refuse(MonError::in_use, title(image) + " is attached to " + describe(other));
    }
  }
  return {};
}

}  // namespace

std::string describe_holders(const ImageEntry& image) {
  std::string text;
  for (const AttachmentEntry& attachment : image.attachments) {
    if (!text.empty()) text += ", ";
    text += describe(attachment);
  }
  return text;
}

Result<bool> apply(MonState& state, const AttachRequest& command) {
  const auto found = state.map.images.find(command.image);
  if (found == state.map.images.end()) {
    return refuse(MonError::not_found, "image with id " + std::to_string(command.image.value));
  }
  ImageEntry& image = found->second;
  if (command.holder == HolderId(0)) return refuse(MonError::bad_request, "holder 0");
  if (image.state == ImageState::removing) {
    return refuse(MonError::busy, title(image) + " is being removed");
  }
  if (command.continue_epoch != AttachEpoch(0)) {
    const AttachmentEntry* const present =
        image.find_attachment(command.holder, command.continue_epoch);
    if (present != nullptr && present->mode == command.mode) return false;
    return refuse(MonError::gone, "attach epoch " + std::to_string(command.continue_epoch.value) +
                                      " of holder " + std::to_string(command.holder.value) +
                                      " of " + title(image) +
                                      ": it was detached, or attached anew");
  }
  SARSEN_TRY(check_other_holders(image, command.holder, command.mode));
  const auto own = std::ranges::find(image.attachments, command.holder, &AttachmentEntry::holder);
  if (own != image.attachments.end()) {
    if (own->mode != command.mode) {
      return refuse(MonError::in_use, title(image) + " is attached to " + describe(*own) +
                                          ", in another mode than is asked for");
    }
    image.attachments.erase(own);
  }
  if (image.attachments.size() >= MapBounds::kAttachmentsMax) {
    return refuse(MonError::bad_request, title(image) + " has " +
                                             std::to_string(MapBounds::kAttachmentsMax) +
                                             " holders, as many as there may be");
  }
  image.last_attach_epoch = image.last_attach_epoch.next();
  image.attachments.push_back(
      {.holder = command.holder, .epoch = image.last_attach_epoch, .mode = command.mode});
  return true;
}

Result<bool> apply(MonState& state, const DetachRequest& command) {
  const auto found = state.map.images.find(command.image);
  if (found == state.map.images.end()) {
    return refuse(MonError::not_found, "image with id " + std::to_string(command.image.value));
  }
  ImageEntry& image = found->second;
  const bool all = command.epoch == AttachEpoch(0);
  if (all && !command.force) {
    return refuse(
        MonError::bad_request,
        "detaching without an attach epoch is for somebody else than the holder, by force");
  }
  if (command.epoch > image.last_attach_epoch) {
    return refuse(MonError::not_found, "attach epoch " + std::to_string(command.epoch.value) +
                                           " of " + title(image) + ": it was never given");
  }
  return std::erase_if(image.attachments, [&](const AttachmentEntry& attachment) {
           return attachment.holder == command.holder && (all || attachment.epoch == command.epoch);
         }) > 0;
}

}  // namespace sarsen::rules
