// The parts of `device inspect`, each a report of what lies on the device and how sound it is.
#pragma once

#include <optional>
#include <string>

#include "dataplane/cli/command.h"
#include "dataplane/store/store_contents.h"

namespace sarsen {

// What is shared by the parts. `sound` turns false when something is damaged.
struct Inspection {
  Env& env;
  Disk& disk;
  const StoreContents& contents;
  std::optional<ObjectKey> object;
  bool sound = true;
};

Task<Result<Json>> inspect_journal(Inspection* inspection);
// These block: on a thread of the pool.
Json inspect_table(Inspection& inspection);
Json inspect_index(Inspection& inspection);
Json inspect_allocator(Inspection& inspection);
// The leaves of inspection.object.
Json inspect_object(Inspection& inspection);

}  // namespace sarsen
