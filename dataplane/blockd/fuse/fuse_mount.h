// Makes a FUSE connection and its mount, which is never attached to a path: nobody can walk into it
// by accident, and no mount namespace has to be shared.
#pragma once

#include <cstdint>
#include <string>

#include "dataplane/base/result.h"
#include "dataplane/keeper/descriptor.h"

namespace sarsen::fuse {

struct Mount {
  keeper::Descriptor connection;  // /dev/fuse, O_NONBLOCK
  keeper::Descriptor mount;       // from fsmount; its root is a folder
  std::uint64_t number = 0;       // of the connection in fusectl, for the keeper's fail()
};

// `source` is what `mount` would show. Asks nothing of the server, so a shard thread may call it.
// Needs CAP_SYS_ADMIN. Errors: permission_denied, kernel_too_old, system.
Result<Mount> make_mount(const std::string& source);

}  // namespace sarsen::fuse
