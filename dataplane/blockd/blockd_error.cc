#include "dataplane/blockd/blockd_error.h"

#include <utility>

namespace sarsen::blockd {
namespace {

class BlockdErrors final : public ErrorCategory {
 public:
  std::string_view name() const override { return "blockd"; }
  std::string_view sentence(int code) const override {
    switch (static_cast<BlockdError>(code)) {
      case BlockdError::in_use: return "the device is in use";
      case BlockdError::not_mapped: return "the image is not mapped on this node";
      case BlockdError::mapped_otherwise: return "the image is mapped here with other options";
      case BlockdError::waiting: return "the image is not served yet";
      case BlockdError::failed: return "the device answers errors only; unmap it";
    }
    return "unknown blockd error";
  }
  ErrorClass error_class(int code) const override {
    switch (static_cast<BlockdError>(code)) {
      case BlockdError::in_use:
      case BlockdError::waiting: return ErrorClass::unavailable;
      case BlockdError::failed: return ErrorClass::failed;
      case BlockdError::not_mapped:
      case BlockdError::mapped_otherwise: return ErrorClass::invalid;
    }
    return ErrorClass::invalid;
  }
};

}  // namespace

const ErrorCategory& blockd_errors() {
  static const BlockdErrors category;
  return category;
}

Error make_error(BlockdError code, std::string detail) {
  return {blockd_errors(), static_cast<int>(code), std::move(detail)};
}

bool is(const Error& error, BlockdError code) {
  return &error.category() == &blockd_errors() && error.code() == static_cast<int>(code);
}

}  // namespace sarsen::blockd
