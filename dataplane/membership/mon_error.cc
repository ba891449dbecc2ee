#include "dataplane/membership/mon_error.h"

namespace sarsen {
namespace {

class MonErrors final : public ErrorCategory {
 public:
  std::string_view name() const override { return "mon"; }
  std::string_view sentence(int code) const override {
    switch (static_cast<MonError>(code)) {
      case MonError::not_found: return "there is no such thing in the cluster map";
      case MonError::exists: return "it exists already";
      case MonError::in_use: return "somebody is using it";
      case MonError::bad_request: return "the request is not acceptable";
      case MonError::boot_refused: return "this OSD may not join with this device";
      case MonError::gone: return "somebody newer has taken its place";
      case MonError::busy: return "something that is still under way comes first";
      case MonError::store_failed: return "the mon cannot write to its map store";
      case MonError::unreachable: return "the mon cannot be reached";
      case MonError::timed_out: return "the mon did not answer in time";
      case MonError::garbled: return "what came is no cluster map or no answer of this version";
      case MonError::wrong_cluster: return "it belongs to another cluster";
      case MonError::stopped: return "the mon is stopping";
    }
    return "unknown error of the mon";
  }
  ErrorClass error_class(int code) const override {
    switch (static_cast<MonError>(code)) {
      case MonError::busy:
      case MonError::store_failed:
      case MonError::unreachable:
      case MonError::timed_out:
      case MonError::stopped: return ErrorClass::unavailable;
      default: return ErrorClass::invalid;
    }
  }
};

}  // namespace

const ErrorCategory& mon_errors() {
  static const MonErrors category;
  return category;
}

}  // namespace sarsen
