// register_disk: raw operations on one simulated device, judged by DiskJudge. It proves the
// simulator itself: un-flushed data may vanish, flushed data never does, each fault is in the
// ledger.
#pragma once

#include "tests/sim/workload.h"

namespace sarsen::sim {

std::unique_ptr<Workload> make_register_disk(WorkloadContext context);

}  // namespace sarsen::sim
