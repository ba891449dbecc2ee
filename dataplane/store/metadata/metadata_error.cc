#include "dataplane/store/metadata/metadata_error.h"

namespace sarsen {
namespace {

class MetadataErrors final : public ErrorCategory {
 public:
  std::string_view name() const override { return "metadata"; }

  std::string_view sentence(int code) const override {
    switch (static_cast<MetadataError>(code)) {
      case MetadataError::no_space: return "no chunk of the device is free for this owner";
      case MetadataError::table_full: return "the device table does not fit its region";
      case MetadataError::not_found: return "it does not exist";
      case MetadataError::bad_geometry: return "the geometry does not fit the device or its table";
      case MetadataError::bad_request: return "the request contradicts what the table says";
      case MetadataError::corrupt: return "stored metadata fails its checks in every copy";
      case MetadataError::device_failed: return "the device failed; reopen before going on";
      case MetadataError::stopped: return "the metadata database is closed";
    }
    return "unknown metadata error";
  }

  ErrorClass error_class(int code) const override {
    switch (static_cast<MetadataError>(code)) {
      case MetadataError::no_space:
      case MetadataError::table_full: return ErrorClass::unavailable;
      case MetadataError::not_found:
      case MetadataError::bad_geometry:
      case MetadataError::bad_request: return ErrorClass::invalid;
      case MetadataError::corrupt: return ErrorClass::corrupt;
      case MetadataError::device_failed: return ErrorClass::failed;
      case MetadataError::stopped: return ErrorClass::cancelled;
    }
    return ErrorClass::failed;
  }
};

}  // namespace

const ErrorCategory& metadata_errors() {
  static const MetadataErrors category;
  return category;
}

}  // namespace sarsen
