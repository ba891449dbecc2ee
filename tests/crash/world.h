// World: one store on one simulated disk, from an image to an image.
//
// Lifecycle  Load an image, open(), use, cut(). A new World for each state, so that a state repeats
//            whatever was explored before it.
// Errors     What the store answers; a broken promise asserts within the simulator.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dataplane/store/store.h"
#include "tests/crash/sequence.h"
#include "tests/sim/disk_log.h"
#include "tests/sim/sim_disk.h"
#include "tests/sim/sim_node.h"
#include "tests/sim/simulator.h"

namespace sarsen::crash {

inline constexpr std::uint64_t kDeviceBytes = 6 * kMiB;

// Sizes so small that the journal wraps and the index is merged within a sequence.
FormatSizes tiny_sizes();

class World {
 public:
  World(std::uint64_t seed, const std::string& planted, sim::SparseImage image);
  ~World() { cut(sim::CrashKind::process_kill); }

  Result<void> format();
  Result<void> open();
  void stop();
  // The process dies between two events; the disk keeps what it keeps.
  void cut(sim::CrashKind kind);
  // After a cut: the machine is on again, nothing is open.
  void power_on() { node_.start(); }
  bool is_open() const { return store_ != nullptr; }

  Contents contents();
  Result<void> audit();
  Result<void> checkpoint();
  // Every block of index and journal verifies.
  Result<void> scrub();
  // Writes tracked blocks; does not end on an error.
  Result<void> write(std::uint32_t tracked, std::uint32_t count, BlockValue value);
  // Performs a letter; the first error that an operation answered. Marks in `log` (may be null)
  // and `history` when each change began and was acknowledged.
  Result<void> perform(Letter letter, std::uint64_t first_value, sim::DiskLog* log,
                       History& history);

  void pass_time(Duration duration) { simulator_.run_for(duration); }
  sim::SimDisk& disk() { return disk_; }
  void fail_one_allocation(std::uint64_t count) { simulator_.fail_one_allocation(count); }
  // A failure of one occasion that has not come yet.
  bool failure_is_to_come() const {
    return disk_.failure_is_to_come() || simulator_.allocation_failure_is_to_come();
  }

 private:
  template <typename T>
  T run(Task<T> task);
  struct Recorder;
  Result<void> perform_format(Recorder recorder);

  sim::Simulator simulator_;
  sim::SimDisk& disk_;
  sim::SimNode& node_;
  std::unique_ptr<Store> store_;
};

}  // namespace sarsen::crash
