// What the NBD server can serve, looked up by name.
//
// Implemented by blockd (the images mapped on this node) and by tests (memory). Shard: the
// server's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dataplane/base/result.h"
#include "dataplane/client/block_target.h"
#include "dataplane/runtime/task.h"

namespace sarsen::nbd {

struct ExportSummary {
  std::string name;         // at most kStringBytesMax
  std::string description;  // for people; may be empty
};

// An open export. Every connection holds one; the target is released when the last one goes.
struct Export {
  ExportSummary summary;
  std::shared_ptr<BlockTarget> target;
  // Requests must be made of units of this many bytes: 1, or a power of two up to 4096.
  std::uint32_t block_bytes_min = 1;
};

class Exports {
 public:
  virtual ~Exports() = default;
  // What a client may see when it asks for a list.
  virtual std::vector<ExportSummary> list() = 0;
  // `name` may be empty: the default export, if there is one. Error: not_found, for a name that is
  // not exported; any other is told to the client as a refusal with its sentence.
  virtual Task<Result<Export>> open(std::string name) = 0;
};

}  // namespace sarsen::nbd
