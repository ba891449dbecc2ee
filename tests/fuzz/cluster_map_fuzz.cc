// Map updates as they come from a mon: what decodes gives a value whose encoding decodes to the
// same value, and can be applied to a map and asked; everything else is refused.
#include <cstdint>
#include <string_view>

#include "dataplane/base/assert.h"
#include "dataplane/membership/rpc/map_codec.h"

namespace sarsen {
namespace {

// What a daemon does with every map it gets.
void use(const ClusterMap& map) {
  for (const auto& [id, image] : map.images) {
    SARSEN_ASSERT(map.find_image(id) == &image, "an entry is found by its id");
    const PoolEntry* const pool = map.find_pool(image.pool);
    if (pool == nullptr) continue;
    const PgNumber group = placement_group(*pool, image, ObjectNumber(image.object_count()));
    SARSEN_ASSERT(group.value < pool->groups.size(), "every object has a group");
    (void)pool->groups[group.value].has_primary(OsdId(0));
  }
}

void try_update(std::string_view bytes) {
  const auto update = decode_update(bytes);
  if (!update) return;
  const auto again = decode_update(encode_update(*update));
  SARSEN_ASSERT(again.has_value() && *again == *update, "an update comes back as it was sent");
  ClusterMap map;
  map.cluster = update->changed.cluster;
  map.store_incarnation = update->changed.store_incarnation;
  map.epoch = update->from;
  SARSEN_ASSERT(apply(map, *update), "an update of this map applies");
  SARSEN_ASSERT(map.epoch == update->changed.epoch, "and leads to its epoch");
  use(map);
}

}  // namespace
}  // namespace sarsen

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  sarsen::try_update({reinterpret_cast<const char*>(data), size});
  return 0;
}
