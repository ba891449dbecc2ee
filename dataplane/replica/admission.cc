#include "dataplane/replica/admission.h"

#include <string>
#include <utility>

#include "dataplane/wire/error.h"

namespace sarsen {
namespace {

using wire::RemoteError;

AdmissionAnswer refuse(RemoteError code, std::string detail, bool map_may_be_old = false) {
  AdmissionAnswer answer;
  answer.refusal = wire::make_error(code, std::move(detail));
  answer.map_may_be_old = map_may_be_old;
  return answer;
}

std::string epochs(PgEpoch asked, PgEpoch known) {
  return "epoch " + std::to_string(asked.value) + " was asked for, " + std::to_string(known.value) +
         " is known";
}

std::optional<AdmissionAnswer> examine_group(const ClusterMap& map, const OsdRun& run,
                                             const wire::PgAddress& pg) {
  const OsdEntry* self = map.find_osd(run.osd);
  if (self == nullptr || self->incarnation < run.incarnation) {
    return refuse(RemoteError::inactive, "this OSD has no map of its own start yet", true);
  }
  if (self->incarnation > run.incarnation) {
    return refuse(RemoteError::inactive, "a later start of this OSD is known");
  }
  const PoolEntry* pool = map.find_pool(pg.pool);
  if (pool == nullptr) return refuse(RemoteError::not_found, "the pool does not exist", true);
  if (pg.number.value >= pool->groups.size()) {
    return refuse(RemoteError::stale_epoch, "the pool has no such group", true);
  }
  const PgConfiguration& group = pool->groups[pg.number.value];
  const bool client_is_newer = pg.epoch > group.epoch;
  if (!group.active) {
    return refuse(RemoteError::inactive, epochs(pg.epoch, group.epoch), client_is_newer);
  }
  if (!group.has_primary(run.osd)) {
    return refuse(RemoteError::not_primary, epochs(pg.epoch, group.epoch), client_is_newer);
  }
  if (pg.epoch != group.epoch) {
    return refuse(RemoteError::stale_epoch, epochs(pg.epoch, group.epoch), client_is_newer);
  }
  return std::nullopt;
}

// An image that was made smaller or larger: the client's map decides, once both have the newest.
AdmissionAnswer refuse_range() {
  return refuse(RemoteError::stale_epoch, "the range does not lie within the image", true);
}

std::optional<AdmissionAnswer> examine_object(const PoolEntry& pool, const ImageEntry& image,
                                              const AdmissionQuestion& question) {
  if (question.branch && *question.branch != image.branch) {
    return refuse(RemoteError::stale_epoch, "the image is on another branch", true);
  }
  if (!question.object) return std::nullopt;
  if (question.object->value > image.size_bytes / kObjectBytes) return refuse_range();
  if (placement_group(pool, image, *question.object) != question.pg.number) {
    return refuse(RemoteError::bad_request, "the object lives in another group");
  }
  const std::uint64_t start = question.object->value * kObjectBytes + question.range.offset;
  if (start + question.range.length > image.size_bytes) return refuse_range();
  return std::nullopt;
}

}  // namespace

AdmissionAnswer examine(const ClusterMap& map, const OsdRun& run,
                        const AdmissionQuestion& question) {
  if (auto answer = examine_group(map, run, question.pg)) return *std::move(answer);
  const ImageEntry* image = map.find_image(question.image);
  if (image == nullptr) return refuse(RemoteError::not_found, "the image does not exist", true);
  if (image->pool != question.pg.pool) {
    return refuse(RemoteError::bad_request, "the image lives in another pool");
  }
  if (image->state != ImageState::ready) {
    return refuse(RemoteError::fenced, "the image is being removed");
  }
  const auto& attached = question.attachment;
  const AttachmentEntry* attachment = image->find_attachment(attached.holder, attached.epoch);
  if (attachment == nullptr) {
    return refuse(RemoteError::fenced, "the attachment is not in the image's set",
                  attached.epoch > image->last_attach_epoch);
  }
  if (question.changes && attachment->mode == AttachMode::read_only) {
    return refuse(RemoteError::read_only, "the attachment is for reading");
  }
  if (auto answer = examine_object(*map.find_pool(image->pool), *image, question)) {
    return *std::move(answer);
  }
  return {.refusal = {}, .map_may_be_old = false, .image = image};
}

}  // namespace sarsen
