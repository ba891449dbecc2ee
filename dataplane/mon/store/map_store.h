// MapStore: where the mon keeps its state. Everything else it knows can be lost.
//
// Threads    One at a time: the caller serialises.
// Errors     MapStoreError. After a failed commit it is unknown whether it took effect: the mon
//            ends, and its successor loads what is there.
#pragma once

#include <string>

#include "dataplane/base/result.h"
#include "dataplane/mon/machine/mon_state.h"

namespace sarsen {

enum class MapStoreError {
  absent = 1,
  exists,
  in_use,
  corrupt,
  format_unsupported,
  io_error,
};

const ErrorCategory& map_store_errors();

inline Error make_error(MapStoreError code, std::string detail = {}) {
  return {map_store_errors(), static_cast<int>(code), std::move(detail)};
}
inline bool is(const Error& error, MapStoreError code) {
  return &error.category() == &map_store_errors() && error.code() == static_cast<int>(code);
}

class MapStore {
 public:
  virtual ~MapStore() = default;
  // What the last commit left.
  virtual Result<MonState> load() = 0;
  // Durable when it returns, as a whole or not at all. `from` is what is there, and of the epoch
  // before `to`'s.
  virtual Result<void> commit(const MonState& from, const MonState& to) = 0;
};

}  // namespace sarsen
