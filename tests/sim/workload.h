// Workload: what one seed does to the system under test, and the judge of what it sees.
//
// A workload adds disks and nodes to the simulator, runs them under a Nemesis until its operations
// are done, then turns faults off and requires that everything completes and reads as it must. A
// broken promise is simulator.fail(what). New workloads are added to the list in main.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "tests/sim/simulator.h"

namespace sarsen::sim {

struct WorkloadContext {
  Simulator& simulator;
  std::uint64_t operations = 0;  // how many to do in this seed
};

class Workload {
 public:
  virtual ~Workload() = default;
  // The whole seed. Returns when it is done or the simulator has failed.
  virtual void run() = 0;
  virtual std::uint64_t operations_done() const = 0;
};

// A row of the list in main.cc.
struct WorkloadEntry {
  std::string_view name;
  std::string_view proves;
  FaultProfile profile;
  std::unique_ptr<Workload> (*make)(WorkloadContext context);
};

}  // namespace sarsen::sim
