// A store on one device under every fault that a single copy can meet.
#pragma once

#include <memory>

#include "tests/sim/workload.h"

namespace sarsen::sim {

std::unique_ptr<Workload> make_store(WorkloadContext context);

// What the `store` workload may meet: everything but what only a second copy could answer.
FaultProfile store_profile();

}  // namespace sarsen::sim
