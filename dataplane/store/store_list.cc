#include "dataplane/store/store_list.h"

#include <algorithm>
#include <utility>

#include "dataplane/store/error.h"

namespace sarsen {
namespace {

// On a thread of the pool.
Result<ObjectPage> read_page(const MetadataDb& db, const KeyRange& range, const std::string& from,
                             std::uint32_t objects_max) {
  ObjectPage page;
  auto cursor = db.cursor(MetadataFamily::index, from, range.end);
  while (cursor.valid()) {
    const auto key = decode_leaf_key(std::as_bytes(std::span(cursor.key())));
    if (!key) return fail(make_error(StoreError::corrupt_index, key.error().message()));
    page.objects.push_back(key->object);
    const std::string next = object_key_range(key->object).end;
    if (page.objects.size() == objects_max) {
      page.next = next;
      return page;
    }
    cursor.seek(next);  // behind the object's other leaves
  }
  if (auto status = cursor.status(); !status) return fail(index_error(status.error()));
  return page;
}

}  // namespace

Task<Result<ObjectPage>> list_objects(StoreState& state, KeyRange range, std::string from,
                                      std::uint32_t objects_max) {
  if (from.empty()) {
    ObjectPage page;
    page.objects = state.overlay.objects();
    std::erase_if(page.objects, [&](const ObjectKey& object) {
      return !range.contains(encode_leaf_key({.object = object, .leaf = 0}));
    });
    // A key that is not empty and sorts before all others of the range.
    page.next = range.begin.empty() ? std::string(1, '\0') : range.begin;
    co_return page;
  }
  MetadataDb& db = *state.db;
  co_return co_await state.env.blocking.run(
      [&] { return read_page(db, range, from, objects_max); });
}

}  // namespace sarsen
