// Sessions: how blockd opens image sessions. Implemented by the client library (programs) and in
// memory (tests).   Shard: the caller's.
#pragma once

#include <memory>

#include "dataplane/client/image_session.h"

namespace sarsen::blockd {

class Sessions {
 public:
  virtual ~Sessions() = default;
  // Errors: those of ImageSession::open().
  virtual Task<Result<std::unique_ptr<ImageSession>>> open(ImageSessionOptions options) = 0;
};

}  // namespace sarsen::blockd
