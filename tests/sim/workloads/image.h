// The image workload: an OSD, a stand-in for the mon, and two nodes with image sessions, under
// crashes, power loss, pauses and a bad network. Proves that an image is a linearizable block
// device, that nothing acknowledged is lost, and that a detached node has no effect any more.
#pragma once

#include <memory>

#include "tests/sim/workload.h"

namespace sarsen::sim {

FaultProfile image_profile();
std::unique_ptr<Workload> make_image(WorkloadContext context);

}  // namespace sarsen::sim
