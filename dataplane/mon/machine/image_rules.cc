#include <algorithm>

#include "dataplane/mon/machine/rules.h"
#include "dataplane/placement/map_bounds.h"

namespace sarsen::rules {
namespace {

Result<PoolEntry*> pool_of(MonState& state, const std::string& name) {
  for (auto& [id, pool] : state.map.pools) {
    if (pool.name == name) return &pool;
  }
  return refuse(MonError::not_found, "pool '" + name + "'");
}

std::string title(const ImageName& name) {
  return "image " + name.pool + "/" + name.name;
}

Result<ImageEntry*> image_of(MonState& state, const ImageName& name) {
  const auto pool = pool_of(state, name.pool);
  if (!pool) return fail(pool.error());
  for (auto& [id, image] : state.map.images) {
    if (image.pool == (*pool)->id && image.name == name.name) return &image;
  }
  return refuse(MonError::not_found, title(name));
}

// Whole blocks. Error: bad_request.
Result<std::uint64_t> size_of_image(const ImageName& name, std::uint64_t bytes) {
  if (bytes == 0 || bytes > MapBounds::kImageBytesMax) {
    return refuse(MonError::bad_request, title(name) + ": a size of " + std::to_string(bytes) +
                                             " bytes; expected 1 to " +
                                             std::to_string(MapBounds::kImageBytesMax));
  }
  return round_up(bytes, kBlockBytes);
}

bool purge_is_complete(const PoolEntry& pool, const ImageEntry& image) {
  for (std::uint32_t number = 0; number < pool.groups.size(); ++number) {
    // A group without a member holds nothing.
    if (pool.groups[number].in_sync.empty()) continue;
    if (!std::ranges::binary_search(image.purged, PgNumber(number))) return false;
  }
  return true;
}

void begin_purge(ImageEntry& image, std::uint64_t from_bytes) {
  image.purging = true;
  image.purge_from_bytes = from_bytes;
  ++image.purge_generation;
  image.purged.clear();
}

// After it, `image` may be gone.
void finish_purge_if_complete(MonState& state, ImageEntry& image) {
  const PoolEntry* const pool = state.map.find_pool(image.pool);
  if (pool == nullptr || !purge_is_complete(*pool, image)) return;
  if (image.state == ImageState::removing) {
    state.map.images.erase(ImageId(image.id));
    return;
  }
  image.purging = false;
  image.purged.clear();
}

// Inserts in order. False when it was there, or does not count.
bool note_purged(MonState& state, const NotePurged& command, const PurgeDone& done) {
  const auto found = state.map.images.find(done.image);
  if (found == state.map.images.end()) return false;
  ImageEntry& image = found->second;
  const PoolEntry* const pool = state.map.find_pool(image.pool);
  const bool counts = image.purging && image.purge_generation == done.purge_generation &&
                      image.pool == done.pool && pool != nullptr &&
                      done.group.value < pool->groups.size() &&
                      pool->groups[done.group.value].has_primary(command.osd);
  if (!counts) return false;
  const auto place = std::ranges::lower_bound(image.purged, done.group);
  if (place != image.purged.end() && *place == done.group) return false;
  image.purged.insert(place, done.group);
  finish_purge_if_complete(state, image);
  return true;
}

}  // namespace

Result<bool> apply(MonState& state, const CreateImage& command, std::int64_t wall_time_ns) {
  SARSEN_TRY(check_name("image", command.name.name));
  const auto pool = pool_of(state, command.name.pool);
  if (!pool) return fail(pool.error());
  const auto size = size_of_image(command.name, command.size_bytes);
  if (!size) return fail(size.error());
  if (const auto present = image_of(state, command.name)) {
    if ((*present)->state == ImageState::removing) {
      return refuse(MonError::busy,
                    title(command.name) + ", an earlier one, is still being removed");
    }
    return refuse(MonError::exists, title(command.name));
  }
  if (state.map.images.size() >= MapBounds::kImagesMax) {
    return refuse(MonError::bad_request, "there are " + std::to_string(MapBounds::kImagesMax) +
                                             " images already, as many as there may be");
  }
  const ImageId id(state.image_next++);
  state.map.images.emplace(id, ImageEntry{.id = id,
                                          .name = command.name.name,
                                          .pool = (*pool)->id,
                                          .size_bytes = *size,
                                          .family = id.value,
                                          .placement_seed = id.value,
                                          .branch = BranchId(1),
                                          .snapshot_generation = SnapshotGeneration(1),
                                          .created_wall_time_ns = wall_time_ns});
  return true;
}

Result<bool> apply(MonState& state, const ResizeImage& command) {
  const auto found = image_of(state, command.name);
  if (!found) return fail(found.error());
  ImageEntry& image = **found;
  const auto size = size_of_image(command.name, command.size_bytes);
  if (!size) return fail(size.error());
  if (image.state == ImageState::removing) {
    return refuse(MonError::busy, title(command.name) + " is being removed");
  }
  if (*size == image.size_bytes) return false;
  if (*size > image.size_bytes) {
    // What is being given back must not come back as content of the new part.
    if (image.purging) {
      return refuse(MonError::busy, title(command.name) +
                                        " was made smaller and still gives back its space; it can "
                                        "grow when that is done");
    }
    image.size_bytes = *size;
    return true;
  }
  if (!command.allow_shrink) {
    return refuse(MonError::bad_request,
                  title(command.name) + " has " + std::to_string(image.size_bytes) +
                      " bytes; making it smaller destroys what lies beyond " +
                      std::to_string(*size) + ", and must be allowed explicitly");
  }
  if (!image.attachments.empty()) {
    return refuse(MonError::in_use, title(command.name) + " is attached to " +
                                        describe_holders(image) +
                                        "; it can be made smaller when detached");
  }
  image.size_bytes = *size;
  begin_purge(image, *size);
  finish_purge_if_complete(state, image);
  return true;
}

Result<bool> apply(MonState& state, const RemoveImage& command) {
  const auto found = image_of(state, command.name);
  if (!found) return fail(found.error());
  ImageEntry& image = **found;
  if (image.state == ImageState::removing) return false;
  if (!image.attachments.empty()) {
    return refuse(MonError::in_use,
                  title(command.name) + " is attached to " + describe_holders(image));
  }
  image.state = ImageState::removing;
  begin_purge(image, 0);
  finish_purge_if_complete(state, image);
  return true;
}

Result<bool> apply(MonState& state, const NotePurged& command) {
  const OsdEntry* const osd = state.map.find_osd(command.osd);
  if (osd == nullptr || osd->incarnation != command.incarnation) return false;
  bool changed = false;
  for (const PurgeDone& done : command.done) changed |= note_purged(state, command, done);
  return changed;
}

}  // namespace sarsen::rules
