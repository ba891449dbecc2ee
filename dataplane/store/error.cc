#include "dataplane/store/error.h"

namespace sarsen {
namespace {

class StoreErrors final : public ErrorCategory {
 public:
  std::string_view name() const override { return "store"; }

  std::string_view sentence(int code) const override {
    switch (static_cast<StoreError>(code)) {
      case StoreError::not_a_store: return "the device holds no Sarsen store";
      case StoreError::superblock_quorum:
        return "fewer than two of the four superblock copies agree";
      case StoreError::format_unsupported:
        return "the store was written in a format that this version does not know";
      case StoreError::geometry_invalid: return "the geometry of the store is not possible";
      case StoreError::device_too_small: return "the device is too small for a store";
      case StoreError::corrupt_block: return "stored data fails its checksum";
      case StoreError::corrupt_index: return "an index value fails its checksum";
      case StoreError::corrupt_journal:
        return "journal records that were acknowledged are unreadable";
      case StoreError::no_space: return "the device has no free space";
      case StoreError::device_failed:
        return "the device failed a write or a flush and takes no more writes";
      case StoreError::bad_request: return "the request is not acceptable";
      case StoreError::stopping: return "the store is stopping";
    }
    return "unknown store error";
  }

  ErrorClass error_class(int code) const override {
    switch (static_cast<StoreError>(code)) {
      case StoreError::corrupt_block:
      case StoreError::corrupt_index:
      case StoreError::corrupt_journal:
      case StoreError::superblock_quorum: return ErrorClass::corrupt;
      case StoreError::no_space: return ErrorClass::unavailable;
      case StoreError::device_failed: return ErrorClass::failed;
      case StoreError::stopping: return ErrorClass::cancelled;
      case StoreError::not_a_store:
      case StoreError::format_unsupported:
      case StoreError::geometry_invalid:
      case StoreError::device_too_small:
      case StoreError::bad_request: return ErrorClass::invalid;
    }
    return ErrorClass::invalid;
  }
};

}  // namespace

const ErrorCategory& store_errors() {
  static const StoreErrors category;
  return category;
}

}  // namespace sarsen
