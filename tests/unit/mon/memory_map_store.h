// A map store in memory that can be made to fail.
#pragma once

#include "dataplane/mon/store/map_store.h"
#include "tests/unit/mon/mon_support.h"

namespace sarsen {

class MemoryMapStore final : public MapStore {
 public:
  Result<MonState> load() override { return state; }
  Result<void> commit(const MonState& from, const MonState& to) override {
    EXPECT_EQ(from, state);
    EXPECT_EQ(to.map.epoch, from.map.epoch.next());
    if (broken) return fail(make_error(MapStoreError::io_error, "test"));
    state = to;
    return {};
  }
  MonState state = new_cluster();
  bool broken = false;
};

}  // namespace sarsen
