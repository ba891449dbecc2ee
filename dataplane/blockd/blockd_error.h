// Error codes of blockd: why an image on this node is not, or cannot be, what was asked for.
#pragma once

#include <string>

#include "dataplane/base/result.h"

namespace sarsen::blockd {

enum class BlockdError {
  in_use = 1,        // a file system is mounted, or a client is connected
  not_mapped,        // no such image here
  mapped_otherwise,  // mapped already, with other options
  waiting,           // not served yet: the cluster does not answer
  failed,            // it was made to answer errors; only unmapping is left
};
const ErrorCategory& blockd_errors();
Error make_error(BlockdError code, std::string detail);
bool is(const Error& error, BlockdError code);

}  // namespace sarsen::blockd
