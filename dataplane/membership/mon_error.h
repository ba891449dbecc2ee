// Errors of the mon: what it answers, and that it cannot be reached. Numbers are part of the API.
#pragma once

#include <string>

#include "dataplane/base/result.h"

namespace sarsen {

enum class MonError {
  not_found = 1,
  exists = 2,
  in_use = 3,
  bad_request = 4,
  boot_refused = 5,
  gone = 6,
  busy = 7,
  store_failed = 8,
  unreachable = 9,
  timed_out = 10,
  garbled = 11,
  wrong_cluster = 12,
  stopped = 13,
};
inline constexpr int kMonErrorMax = 13;

const ErrorCategory& mon_errors();

inline Error make_error(MonError code, std::string detail = {}) {
  return {mon_errors(), static_cast<int>(code), std::move(detail)};
}
inline bool is(const Error& error, MonError code) {
  return &error.category() == &mon_errors() && error.code() == static_cast<int>(code);
}

}  // namespace sarsen
