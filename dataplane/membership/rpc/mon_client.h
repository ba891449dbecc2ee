// MonClient: MonApi over gRPC.
//
// Threads    Any, also at once. Calls block up to `call_max`; gRPC reconnects by itself.
// Lifecycle  No call is under way when it dies.
#pragma once

#include <memory>

#include "dataplane/membership/mon_api.h"

namespace sarsen {

struct MonClientOptions {
  Address mon;  // "unix:PATH" or "tcp:HOST:PORT"
  Duration call_max = seconds(10);
};

class MonClient final : public MonApi {
 public:
  // Does not connect yet. Error: bad_request (address), saying what would be accepted.
  static Result<std::unique_ptr<MonClient>> create(MonClientOptions options);
  ~MonClient() override;

  Result<ImageEntry> create_image(ImageName name, std::uint64_t size_bytes) override;
  Result<std::vector<ImageEntry>> list_images(std::string pool) override;
  Result<ImageEntry> get_image(ImageName name) override;
  Result<ImageEntry> resize_image(ImageName name, std::uint64_t size_bytes,
                                  bool allow_shrink) override;
  Result<ImageEntry> remove_image(ImageName name) override;
  Result<Attached> attach_image(AttachRequest request) override;
  Result<MapEpoch> detach_image(DetachRequest request) override;
  Result<OsdCreated> create_osd(Uuid device, std::string node) override;
  Result<void> forget_osd(OsdId osd, Uuid device) override;
  Result<OsdBooted> boot_osd(OsdBoot boot) override;
  Result<MapEpoch> report_osd(OsdReport report) override;
  Result<ClusterStatus> status() override;

 private:
  struct Transport;
  explicit MonClient(std::unique_ptr<Transport> transport);
  std::unique_ptr<Transport> transport_;
};

}  // namespace sarsen
