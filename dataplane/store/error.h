// Error codes of the store.
#pragma once

#include <string>
#include <utility>

#include "dataplane/base/result.h"

namespace sarsen {

enum class StoreError {
  not_a_store = 1,     // no superblock of ours
  superblock_quorum,   // fewer than two equal copies
  format_unsupported,  // a feature or version this build does not know
  geometry_invalid,
  device_too_small,
  corrupt_block,  // data or its checksum is bad
  corrupt_index,
  corrupt_journal,  // identities of acknowledged records are lost
  no_space,
  device_failed,  // a write or flush failed: no more writes until the device is replaced
  bad_request,
  stopping,
};

const ErrorCategory& store_errors();

inline Error make_error(StoreError code) {
  return {store_errors(), static_cast<int>(code)};
}
inline Error make_error(StoreError code, std::string detail) {
  return {store_errors(), static_cast<int>(code), std::move(detail)};
}
// What an error of the index means to the store: corrupt_index when data is bad, the error itself
// when the device did not answer.
inline Error index_error(const Error& error) {
  if (error.error_class() != ErrorClass::corrupt) return error;
  return make_error(StoreError::corrupt_index, error.message());
}
inline bool is(const Error& error, StoreError code) {
  return &error.category() == &store_errors() && error.code() == static_cast<int>(code);
}

}  // namespace sarsen
