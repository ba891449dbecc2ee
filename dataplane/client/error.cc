#include "dataplane/client/error.h"

namespace sarsen {
namespace {

class ClientErrors final : public ErrorCategory {
 public:
  std::string_view name() const override { return "client"; }

  std::string_view sentence(int code) const override {
    switch (static_cast<ClientError>(code)) {
      case ClientError::out_of_range: return "the range does not lie within the image";
      case ClientError::read_only: return "the image takes no changes from this session";
      case ClientError::fenced: return "the image was detached from this session";
      case ClientError::timed_out: return "the image could not be served in time";
      case ClientError::stopped: return "the session was stopped";
      case ClientError::not_found: return "there is no such image";
    }
    return "unknown client error";
  }

  ErrorClass error_class(int code) const override {
    switch (static_cast<ClientError>(code)) {
      case ClientError::out_of_range:
      case ClientError::read_only:
      case ClientError::not_found: return ErrorClass::invalid;
      case ClientError::fenced: return ErrorClass::failed;
      case ClientError::timed_out: return ErrorClass::unavailable;
      case ClientError::stopped: return ErrorClass::cancelled;
    }
    return ErrorClass::failed;
  }
};

}  // namespace

const ErrorCategory& client_errors() {
  static const ClientErrors category;
  return category;
}

}  // namespace sarsen
