#include "dataplane/mon/store/map_store.h"

namespace sarsen {
namespace {

class MapStoreErrors final : public ErrorCategory {
 public:
  std::string_view name() const override { return "map store"; }
  std::string_view sentence(int code) const override {
    switch (static_cast<MapStoreError>(code)) {
      case MapStoreError::absent:
        return "there is no map store; an empty one is made only by 'sarsen cluster create'";
      case MapStoreError::exists:
        return "there is something already; a map store is made only in a new or empty folder";
      case MapStoreError::in_use: return "another process has the map store open";
      case MapStoreError::corrupt:
        return "the map store is damaged and was left as it is; restore the folder from a backup";
      case MapStoreError::format_unsupported:
        return "the map store was written by a version that this one does not understand";
      case MapStoreError::io_error: return "the map store cannot be read or written";
    }
    return "unknown error of the map store";
  }
  ErrorClass error_class(int code) const override {
    switch (static_cast<MapStoreError>(code)) {
      case MapStoreError::in_use: return ErrorClass::unavailable;
      case MapStoreError::corrupt: return ErrorClass::corrupt;
      case MapStoreError::io_error: return ErrorClass::failed;
      default: return ErrorClass::invalid;
    }
  }
};

}  // namespace

const ErrorCategory& map_store_errors() {
  static const MapStoreErrors category;
  return category;
}

}  // namespace sarsen
