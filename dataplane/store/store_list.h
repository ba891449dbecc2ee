// Lists the objects of a key range: first those in the overlay, then those in the index.
//
// In this order no object is missed: what leaves the overlay while the list is made is in the index
// before. One that is in both comes twice.
#pragma once

#include <string>

#include "dataplane/store/store_state.h"

namespace sarsen {

Task<Result<ObjectPage>> list_objects(StoreState& state, KeyRange range, std::string from,
                                      std::uint32_t objects_max);

}  // namespace sarsen
