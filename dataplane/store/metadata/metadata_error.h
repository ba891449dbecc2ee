// Error codes of the metadata zone: the device table, its files and the database in them.
//
// Errors of the device itself pass through unchanged as RuntimeError (io_error, device_gone, ...),
// except out of MetadataDb, where RocksDB stands between: there they are device_failed.
#pragma once

#include <string>

#include "dataplane/base/result.h"

namespace sarsen {

enum class MetadataError {
  no_space = 1,
  table_full,
  not_found,
  bad_geometry,
  bad_request,
  corrupt,
  device_failed,
  stopped,
};

const ErrorCategory& metadata_errors();

inline Error make_error(MetadataError code) {
  return {metadata_errors(), static_cast<int>(code)};
}
inline Error make_error(MetadataError code, std::string detail) {
  return {metadata_errors(), static_cast<int>(code), std::move(detail)};
}
inline bool is(const Error& error, MetadataError code) {
  return &error.category() == &metadata_errors() && error.code() == static_cast<int>(code);
}

}  // namespace sarsen
