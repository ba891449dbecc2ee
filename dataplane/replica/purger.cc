#include "dataplane/replica/purger.h"

#include <algorithm>
#include <utility>

#include "dataplane/runtime/when_all.h"
#include "dataplane/runtime/yield.h"

namespace sarsen {

Purger::Purger(Env& env, MapSource& map, Store& store, PurgeTarget& target, OsdRun run,
               PurgeLimits limits)
    : env_(env),
      map_(map),
      store_(store),
      target_(target),
      run_(run),
      limits_(limits),
      work_(env.clock, env.executor, limits.retry_delay,
            [this](CancelToken token) { return work(token); }) {}

std::vector<PurgeDone> Purger::done() const {
  std::vector<PurgeDone> done;
  for (const auto& [image, generation, pool, group] : done_) {
    done.push_back({.image = image, .purge_generation = generation, .pool = pool, .group = group});
  }
  return done;
}

// What the map wants and is not done.
std::vector<PurgeTask> Purger::tasks() const {
  std::vector<PurgeTask> tasks;
  const ClusterMap& map = *map_.current();
  const OsdEntry* self = map.find_osd(run_.osd);
  if (self == nullptr || self->incarnation != run_.incarnation) return tasks;
  for (const auto& [id, image] : map.images) {
    if (!image.purging) continue;
    const PoolEntry* pool = map.find_pool(image.pool);
    if (pool == nullptr) continue;
    for (std::uint32_t number = 0; number < pool->groups.size(); ++number) {
      const PgNumber group(number);
      if (!pool->groups[number].has_primary(run_.osd)) continue;
      if (std::ranges::find(image.purged, group) != image.purged.end()) continue;
      if (done_.contains({id, image.purge_generation, pool->id, group})) continue;
      tasks.push_back({.image = id,
                       .generation = image.purge_generation,
                       .pg = {pool->id, group, pool->groups[number].epoch}});
    }
  }
  return tasks;
}

Task<void> Purger::work(CancelToken token) {
  // Known to the mon, or overtaken.
  std::erase_if(done_, [&](const Name& name) {
    const auto& [id, generation, pool, group] = name;
    const ImageEntry* image = map_.current()->find_image(id);
    return image == nullptr || !image->purging || image->purge_generation != generation ||
           std::ranges::find(image->purged, group) != image->purged.end();
  });
  for (const PurgeTask& task : tasks()) {
    if (token.cancelled()) co_return;
    // What fails is tried again in the next run.
    if (!co_await purge(task, token)) continue;
    done_.insert({task.image, task.generation, task.pg.pool, task.pg.number});
    target_.purge_ended();
  }
}

Task<Result<void>> Purger::purge(PurgeTask task, CancelToken token) {
  const std::shared_ptr<const ClusterMap> map = map_.current();
  const PoolEntry* pool = map->find_pool(task.pg.pool);
  if (pool == nullptr) co_return fail(make_error(RuntimeError::not_found));
  const KeyRange range = group_key_range(pool->id, task.pg.number.value, pool->group_bits);
  std::string from;
  do {
    auto page = co_await store_.objects(range, from, limits_.page_objects);
    if (!page) co_return fail(page.error());
    SARSEN_CO_TRY(co_await purge_page(task, std::move(page->objects)));
    if (token.cancelled()) co_return fail(token.error());
    co_await yield(env_.executor);
    from = page->next;
  } while (!from.empty());
  co_return Result<void>();
}

Task<Result<void>> Purger::purge_page(PurgeTask task, std::vector<ObjectKey> objects) {
  // The map may have moved on; the target compares the generation.
  const ImageEntry* image = map_.current()->find_image(task.image);
  if (image == nullptr) co_return fail(make_error(RuntimeError::not_found));
  const ObjectKey sample = image->object_key(ObjectNumber(0));
  const std::uint64_t start = image->purge_from_bytes;
  std::erase_if(objects, [&](const ObjectKey& key) {
    return key.family != sample.family || key.branch != sample.branch ||
           (key.object_number + 1) * kObjectBytes <= start;
  });
  for (std::size_t i = 0; i < objects.size();) {
    std::vector<Task<Result<void>>> some;
    for (; i < objects.size() && some.size() < limits_.objects_at_once; ++i) {
      const std::uint64_t object_start = objects[i].object_number * kObjectBytes;
      const std::uint64_t keep = start > object_start ? start - object_start : 0;
      const auto first_block =
          static_cast<std::uint32_t>(round_up(keep, kBlockBytes) / kBlockBytes);
      if (first_block < kBlocksPerObject) {
        some.push_back(target_.purge_object(task, objects[i], first_block));
      }
    }
    SARSEN_CO_TRY(first_error(co_await when_all(env_.executor, std::move(some))));
  }
  co_return Result<void>();
}

}  // namespace sarsen
