#include "dataplane/store/index/error.h"

namespace sarsen {
namespace {

class IndexErrors final : public ErrorCategory {
 public:
  std::string_view name() const override { return "index"; }

  std::string_view sentence(int code) const override {
    switch (static_cast<IndexError>(code)) {
      case IndexError::key_malformed: return "the bytes are not the key of an index leaf";
      case IndexError::value_corrupt: return "a stored value does not match its checksum and key";
      case IndexError::value_malformed: return "a stored value is impossible";
      case IndexError::format_unsupported: return "a stored value has a format of a newer version";
      case IndexError::extent_unacceptable: return "the extent cannot be part of a leaf";
      case IndexError::double_owner: return "a device block would have two owners";
      case IndexError::not_owned: return "a device block is dropped that nobody owns";
      case IndexError::outside_lane: return "a device block is in no chunk of this lane";
      case IndexError::no_space: return "the lane has no free blocks for this";
      case IndexError::accounting_broken: return "what is counted is not what is there";
    }
    return "unknown index error";
  }

  ErrorClass error_class(int code) const override {
    switch (static_cast<IndexError>(code)) {
      case IndexError::format_unsupported:
      case IndexError::extent_unacceptable: return ErrorClass::invalid;
      case IndexError::no_space: return ErrorClass::unavailable;
      case IndexError::key_malformed:
      case IndexError::value_corrupt:
      case IndexError::value_malformed:
      case IndexError::double_owner:
      case IndexError::not_owned:
      case IndexError::outside_lane:
      case IndexError::accounting_broken: return ErrorClass::corrupt;
    }
    return ErrorClass::corrupt;
  }
};

}  // namespace

const ErrorCategory& index_errors() {
  static const IndexErrors category;
  return category;
}

}  // namespace sarsen
