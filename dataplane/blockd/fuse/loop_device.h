// /dev/loopN over an open file, with direct I/O.
//
// Thread   Every call may wait for the server of the file: never from the process that serves it
// (see
//          loop_helper.h).
// Found    A device is known by what it is bound to, the file's device and inode number: loop
// numbers
//          are reused by others as soon as they are free.
// Errors   RuntimeError values; `overloaded` when a device stays in use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dataplane/base/result.h"

namespace sarsen::fuse {

struct LoopOptions {
  std::uint32_t sector_bytes = 4096;  // 512 or 4096
  bool read_only = false;
  std::string label;  // shown as lo_file_name; at most 63 bytes
};

// What a loop device is bound to.
struct LoopBacking {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  bool operator==(const LoopBacking&) const = default;
};

struct LoopDevice {
  std::uint32_t number = 0;
  LoopBacking backing;
  bool direct_io = false;
  std::string label;

  std::string path() const { return "/dev/loop" + std::to_string(number); }
};

// Binds a free loop device to `file`, opened with O_DIRECT. Writes to the device are durable when
// they complete, so its cache is declared "write through" and nobody sends flushes.
Result<LoopDevice> attach_loop(int file, const LoopOptions& options);

// The device bound to `backing`, or not_found.
Result<LoopDevice> find_loop(const LoopBacking& backing);
// Those whose label starts with `prefix`.
Result<std::vector<LoopDevice>> find_labelled_loops(const std::string& prefix);
// What `number` is bound to, or not_found.
Result<LoopDevice> inspect_loop(std::uint32_t number);

// The size that the device has now, as sysfs tells it: this opens nothing and waits for nobody. 0
// when it cannot be told.
std::uint64_t loop_size_bytes(std::uint32_t number);

// Unbinds it if it is still bound to `backing`, and returns when it is free. A device that someone
// has open only gets marked to be freed at the last close: then the answer is `overloaded`.
Result<void> detach_loop(std::uint32_t number, const LoopBacking& backing);

// Gives the device the size that its file has now.
Result<void> resize_loop(std::uint32_t number, const LoopBacking& backing);

}  // namespace sarsen::fuse
