// What a process must be before it serves block devices.
#pragma once

#include <string>

#include "dataplane/base/result.h"
#include "dataplane/keeper/descriptor.h"

namespace sarsen::fuse {

// Memory stays resident, and allocations never wait for write-back: the kernel may be writing back
// through this very process. Call it from main() before threads are made: they inherit the flag.
// Errors: memlock_too_low; permission_denied (CAP_SYS_RESOURCE for PR_SET_IO_FLUSHER).
Result<void> become_block_server();

// I-BLOCKD-1. Held while this process serves the devices of a node. The kernel gives it to the next
// server when the last descriptor of this process is closed, and before that all its reads have
// ended: whoever has the lock may ask for the requests that its predecessor left.
class ServerLock {
 public:
  // Waits for the predecessor to end, for at most `wait_ms`. Error: overloaded.
  static Result<ServerLock> acquire(const std::string& path, int wait_ms);

 private:
  explicit ServerLock(keeper::Descriptor file) : file_(std::move(file)) {}
  keeper::Descriptor file_;
};

}  // namespace sarsen::fuse
