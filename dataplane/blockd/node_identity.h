// Who this node is to the cluster: a number made once and kept on the host, never an address, so
// that attachments survive new addresses and a moved disk takes its identity along.
#pragma once

#include <string>

#include "dataplane/base/result.h"
#include "dataplane/wire/message.h"

namespace sarsen::blockd {

// From the file "node-id" in `folder` (16 hex digits), which is made, with the folder, when there
// is none. Two that start at once agree. Errors: bad_argument, a file that holds something else;
// those of the file system. Blocking.
Result<wire::HolderId> load_or_make_node_id(const std::string& folder);

}  // namespace sarsen::blockd
