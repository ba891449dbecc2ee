// Admission: whether an operation may be done, as far as the cluster map says. Pure; asked anew
// after each wait.
//
// The checks in their order: this run of the OSD is the one of the map; pool and group; the group
// serves, this OSD leads it, and the client believes in the same configuration; the image is there
// and ready; the object belongs to the group; the attachment is in the image's set (I-REPLICA-1);
// it may change the image; branch; the range lies within the image.
//
// Invariants
//   I-REPLICA-1  Nothing takes effect for a (holder, attach epoch) that is not in the map which the
//                OSD acts on (rule R6).
#pragma once

#include <cstdint>
#include <optional>

#include "dataplane/base/result.h"
#include "dataplane/placement/cluster_map.h"

namespace sarsen {

// The run of the OSD that asks.
struct OsdRun {
  OsdId osd;
  std::uint64_t incarnation = 0;
};

struct AdmissionQuestion {
  wire::PgAddress pg;
  ImageId image;
  wire::Attachment attachment;
  std::optional<BranchId> branch{};
  std::optional<ObjectNumber> object{};
  wire::Range range{};
  bool changes = false;
};

struct AdmissionAnswer {
  std::optional<Error> refusal{};  // a wire::RemoteError
  // The client may know a newer map, in which it is right.
  bool map_may_be_old = false;
  const ImageEntry* image = nullptr;  // of the map that was asked
};

AdmissionAnswer examine(const ClusterMap& map, const OsdRun& run,
                        const AdmissionQuestion& question);

}  // namespace sarsen
