// Images: everything that is mapped on this node, by name.
//
// Lifecycle  recover() once, with the ServerLock held; `co_await stop()` leaves all images to the
//            next blockd and comes before the destructor. No call is under way then.
// Shard      One.   Owns the images; borrows what ImagesContext has.
// Errors     Those of MappedImage; BlockdError.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dataplane/blockd/mapped_image.h"
#include "dataplane/blockd/nbd/nbd_export.h"

namespace sarsen::blockd {

struct MapOptions {
  std::string image;  // POOL/IMAGE
  Frontend frontend = Frontend::loop;
  std::uint32_t sector_bytes = 4096;  // 512 or 4096
  AttachMode mode = AttachMode::single_writer;
};

class Images final : public nbd::Exports {
 public:
  explicit Images(ImagesContext context) : context_(std::move(context)) {}

  // Takes over what an earlier blockd left, each image in the background, and frees loop devices
  // that it left half made. Gives how many were taken over. Error: disconnected, no keeper.
  Task<Result<std::uint32_t>> recover();
  // An image that is mapped in the same way already is given as it is.
  Task<Result<ImageReport>> map(MapOptions options);
  Task<Result<void>> unmap(std::string image, bool force);
  Task<Result<void>> fail(std::string image);
  std::vector<ImageReport> report() const;
  Task<void> stop();

  // Exports: the images whose frontend is NBD.
  std::vector<nbd::ExportSummary> list() override;
  Task<Result<nbd::Export>> open(std::string name) override;

 private:
  using Pointer = std::shared_ptr<MappedImage>;

  bool take_over(keeper::Held held);
  Pointer find(const std::string& name);
  // One that has ended makes room for the next of its name.
  void forget(const Pointer& image);
  Task<Result<void>> detach_leftovers(std::string image);

  ImagesContext context_;
  std::map<std::string, Pointer> images_;
};

}  // namespace sarsen::blockd
