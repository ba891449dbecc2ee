// What a process sees of a SimDisk: a Disk per shard, a BlockingDisk per node. They belong to one
// incarnation of the node. Included by sim_disk.h.
#pragma once

#include "tests/sim/sim_disk.h"
#include "tests/sim/sim_executor.h"

namespace sarsen::sim {

class SimDiskPort final : public Disk {
 public:
  SimDiskPort(SimDisk& disk, SimExecutor& executor) : disk_(disk), executor_(executor) {}
  const DiskInfo& info() const override { return disk_.info(); }
  SimExecutor& executor() { return executor_; }
  // From now on submissions are ignored: the process is dead.
  void cut() { cut_ = true; }

 protected:
  void submit(DiskOperation& operation) override {
    operation.scratch = 0;
    if (!cut_) disk_.submit(*this, operation);
  }
  void withdraw(DiskOperation& operation) override { disk_.withdraw(operation); }

 private:
  SimDisk& disk_;
  SimExecutor& executor_;
  bool cut_ = false;
};

class SimBlockingPort final : public BlockingDisk {
 public:
  SimBlockingPort(SimDisk& disk, SimNode& node) : disk_(disk), node_(node) {}
  const DiskInfo& info() const override { return disk_.info(); }
  Result<void> read(ByteOffset offset, std::span<std::byte> into) override {
    return io(DiskOperationKind::read, offset, into);
  }
  Result<void> write(ByteOffset offset, std::span<const std::byte> from) override {
    return io(DiskOperationKind::write, offset, {const_cast<std::byte*>(from.data()), from.size()});
  }
  Result<void> flush() override { return io(DiskOperationKind::flush, ByteOffset(0), {}); }
  void cut() { cut_ = true; }

 private:
  Result<void> io(DiskOperationKind kind, ByteOffset offset, std::span<std::byte> data) {
    if (cut_) return fail(make_error(RuntimeError::device_gone, "the simulated process is dead"));
    return disk_.blocking_io(node_, kind, offset, data);
  }

  SimDisk& disk_;
  SimNode& node_;
  bool cut_ = false;
};

}  // namespace sarsen::sim
