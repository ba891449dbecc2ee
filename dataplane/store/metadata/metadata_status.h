// RocksDB's answers as our errors.
#pragma once

#include <rocksdb/status.h>

#include "dataplane/store/metadata/metadata_error.h"

namespace sarsen {

inline Error error_of(const rocksdb::Status& status) {
  if (status.IsNoSpace()) return make_error(MetadataError::no_space, status.ToString());
  if (status.IsCorruption()) return make_error(MetadataError::corrupt, status.ToString());
  if (status.IsNotFound()) return make_error(MetadataError::not_found, status.ToString());
  // An opening that fails for the device can be told as "Invalid argument: ...: IO error: ...".
  const bool wrapped = status.ToString().find(": IO error: ") != std::string::npos;
  if (!wrapped && (status.IsInvalidArgument() || status.IsNotSupported())) {
    return make_error(MetadataError::bad_request, status.ToString());
  }
  return make_error(MetadataError::device_failed, status.ToString());
}

inline Result<void> result_of(const rocksdb::Status& status) {
  if (status.ok()) return {};
  return fail(error_of(status));
}

}  // namespace sarsen
