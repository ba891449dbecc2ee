// What is on a device, before somebody overwrites it: signatures of others (libblkid), a Sarsen
// store in any state, or data that nobody recognises.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dataplane/runtime/env.h"
#include "dataplane/store/superblock.h"

namespace sarsen {

// "ext4 file system", at a byte offset.
struct ForeignSignature {
  std::string what;
  std::string label;  // or uuid; may be empty
  std::string offset;
};

// Superblock copies that carry our magic, whatever state they are in.
struct FoundStore {
  std::uint32_t copies_found = 0;
  std::uint32_t copies_valid = 0;
  // Ids of the valid copies, each once. A healthy store has one.
  std::vector<std::string> device_ids;
  std::optional<Superblock> newest;  // of the valid copies
};

struct DeviceContents {
  std::vector<ForeignSignature> foreign;
  std::optional<FoundStore> store;
  // An unfinished format: no superblock, but the first record of a device table.
  bool interrupted_format = false;
  // The first place with data other than zeros, of those that were looked at.
  std::optional<std::uint64_t> data_at;
};

// `descriptor` is open on what `disk` reads. Looks at the first and last MiB, at kSamples blocks
// evenly spaced, and at the start of each piece of a sparse file. Changes nothing. Errors: the
// disk's; system, when libblkid cannot look.
Result<DeviceContents> look_at_contents(int descriptor, BlockingDisk& disk);
// The part that libblkid plays, alone. Ends direct I/O of the descriptor.
Result<std::vector<ForeignSignature>> foreign_signatures(int descriptor, const std::string& name);

}  // namespace sarsen
