// The kernel's switch that ends a FUSE connection for good.
#pragma once

#include <cstdint>

namespace sarsen::keeper {

// Every request of the connection, waiting, in flight or to come, answers an error at once,
// whether or not a server lives. `connection` is its number in fusectl (the minor device number of
// the mount). fusectl need not be mounted anywhere. Needs CAP_SYS_ADMIN. True: done, or the
// connection is gone already.
bool abort_fuse_connection(std::uint64_t connection);

}  // namespace sarsen::keeper
