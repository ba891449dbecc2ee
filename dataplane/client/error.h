// Error codes of image sessions.
#pragma once

#include <string>
#include <utility>

#include "dataplane/base/result.h"

namespace sarsen {

enum class ClientError {
  out_of_range = 1,  // the range does not lie within the image
  read_only,         // the attachment or the image takes no changes
  fenced,            // the attachment is gone: this session never does anything again
  timed_out,         // not answered within the session's limit; a change may have taken effect
  stopped,           // the session was stopped
  not_found,         // there is no such image
};

const ErrorCategory& client_errors();

inline Error make_error(ClientError code) {
  return {client_errors(), static_cast<int>(code)};
}
inline Error make_error(ClientError code, std::string detail) {
  return {client_errors(), static_cast<int>(code), std::move(detail)};
}
inline bool is(const Error& error, ClientError code) {
  return &error.category() == &client_errors() && error.code() == static_cast<int>(code);
}

}  // namespace sarsen
