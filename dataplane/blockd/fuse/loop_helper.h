// Runs sarsen-loop: the steps on a device that may wait for its server, in a process of their own.
//
// I-BLOCKD-2: a thread that waits for an answer which its own process owes can never be killed:
// killing the server in that moment would leave a process that does not end, holds the descriptors,
// and blocks its own restart. A helper process holds no descriptor of the connection, so the
// connection dies with the server, or is taken over by the next one, and the helper's wait ends
// either way.
//
// Thread   Blocking; from the BlockingPool, while the shard serves.
// Errors   What sarsen-loop printed; timed_out when it did not end in time (it is killed, and ends
//          when its device is served or failed).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dataplane/base/result.h"
#include "dataplane/blockd/fuse/loop_device.h"

namespace sarsen::fuse {

class LoopHelper {
 public:
  static constexpr int kTimeoutMs = 30'000;

  // `program`: where sarsen-loop is.
  explicit LoopHelper(std::string program) : program_(std::move(program)) {}
  // Beside the running program.
  static LoopHelper beside_this_program();

  // Opens `file_name` below `mount` and binds a loop device to it.
  Result<LoopDevice> attach(int mount, const std::string& file_name,
                            const LoopOptions& options) const;
  // Waits for the last user of the device to close it, for a few seconds.
  Result<void> detach(std::uint32_t number, const LoopBacking& backing) const;
  // Makes kernel and loop device learn the file's new size.
  Result<void> resize(int mount, const std::string& file_name, std::uint32_t number,
                      const LoopBacking& backing) const;
  // Unbinds devices that were made by attach() with a label that starts with `prefix`, except those
  // in `keep`: left behind by a server that died before it told the keeper of them. Gives how many.
  Result<std::uint32_t> sweep(const std::string& prefix,
                              const std::vector<std::uint32_t>& keep) const;

 private:
  // Gives what it printed.
  Result<std::string> run(const std::vector<std::string>& arguments, int mount) const;

  std::string program_;
};

}  // namespace sarsen::fuse
