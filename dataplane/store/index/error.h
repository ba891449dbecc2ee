// Error codes of the store's index: keys, leaves and free space.
#pragma once

#include <string>
#include <utility>

#include "dataplane/base/result.h"

namespace sarsen {

enum class IndexError {
  key_malformed = 1,    // the bytes cannot be the key of a leaf
  value_corrupt,        // the checksum of a stored value, salted with its key, does not match
  value_malformed,      // the checksum matches, but no encoder of ours writes such a value
  format_unsupported,   // written by a newer version
  extent_unacceptable,  // an extent that breaks the rules of IndexLeaf
  double_owner,         // a block would have two owners
  not_owned,            // a block is dropped that nobody owns
  outside_lane,         // a block is in no chunk of this lane
  no_space,             // no free blocks for this purpose
  accounting_broken,    // what is counted is not what is there
};

const ErrorCategory& index_errors();

inline Error make_error(IndexError code) {
  return {index_errors(), static_cast<int>(code)};
}
inline Error make_error(IndexError code, std::string detail) {
  return {index_errors(), static_cast<int>(code), std::move(detail)};
}
inline bool is(const Error& error, IndexError code) {
  return &error.category() == &index_errors() && error.code() == static_cast<int>(code);
}

}  // namespace sarsen
