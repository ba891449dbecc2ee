// ControlClient: asks the blockd of this node (blockd.proto). For the CLI, the CSI node service and
// tests.
//
// Threads    Any. Calls block, up to kCallMaxSeconds.
// Errors     ControlError; messages are blockd's own sentences.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dataplane/base/result.h"

namespace sarsen::blockd {

enum class ControlError {
  unreachable = 1,  // no blockd answers
  timed_out,
  not_found,  // no such image, or it is not mapped here
  refused,    // in use, mapped otherwise, or not acceptable
  not_now,    // try again
  failed,
};
const ErrorCategory& control_errors();
bool is(const Error& error, ControlError code);

struct DeviceRequest {
  std::string image;  // POOL/IMAGE
  bool nbd = false;
  std::uint32_t sector_bytes = 4096;
  bool read_only = false;
};

struct DeviceReport {
  std::string image;
  bool nbd = false;
  std::string device;
  std::string state;
  std::string detail;
  std::uint64_t size_bytes = 0;
  std::uint32_t sector_bytes = 0;
  bool read_only = false;
  std::uint64_t image_id = 0;
  std::uint64_t holder = 0;
  std::uint64_t attach_epoch = 0;
  std::uint32_t nbd_connections = 0;
  std::uint32_t requests_waiting = 0;
  std::uint64_t reads = 0;
  std::uint64_t writes = 0;
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;
  std::uint64_t resent = 0;
};

class ControlClient {
 public:
  static constexpr int kCallMaxSeconds = 90;

  // Does not connect yet.
  explicit ControlClient(const std::string& socket);
  ~ControlClient();

  Result<DeviceReport> map(const DeviceRequest& request);
  Result<void> unmap(const std::string& image, bool force);
  Result<void> fail(const std::string& image, int seconds_max = kCallMaxSeconds);
  Result<std::vector<DeviceReport>> list();

 private:
  struct Transport;
  std::unique_ptr<Transport> transport_;
};

}  // namespace sarsen::blockd
