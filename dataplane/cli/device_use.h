// Who uses a device or file right now, as far as the kernel tells: everything that would lose its
// data if the device were formatted. The claim of DiskFile (O_EXCL) comes on top of it and catches
// what is not visible here, such as mounts of other mount namespaces.
#pragma once

#include <string>
#include <vector>

#include "dataplane/base/result.h"

namespace sarsen {

struct DeviceUse {
  std::string path;           // as given
  std::string resolved_path;  // after symbolic links
  bool block_device = false;
  // One sentence each, without the path; empty when nobody uses it.
  std::vector<std::string> reasons;
};

// Reads /sys, /proc/self/mountinfo and /proc/swaps. Error: not_found, bad_argument (neither a
// block device nor a regular file).
Result<DeviceUse> look_at_use(const std::string& path);

}  // namespace sarsen
