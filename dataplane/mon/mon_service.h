// The Mon service of gRPC over a Mon. Heavy to include: only for .cc files.
//
// Calls run on gRPC's threads and block there for the store; WatchMap holds no thread.
#pragma once

#include "dataplane/membership/proto/mon.grpc.pb.h"
#include "dataplane/mon/mon.h"

namespace sarsen {

class MonService final : public v1::Mon::WithCallbackMethod_WatchMap<v1::Mon::Service> {
 public:
  // Borrowed.
  explicit MonService(Mon& mon) : mon_(mon) {}

  grpc::ServerWriteReactor<v1::MapUpdate>* WatchMap(grpc::CallbackServerContext* context,
                                                    const v1::WatchMapRequest* request) override;
  grpc::Status GetStatus(grpc::ServerContext* context, const v1::GetStatusRequest* request,
                         v1::GetStatusResponse* response) override;
  grpc::Status CreateImage(grpc::ServerContext* context, const v1::CreateImageRequest* request,
                           v1::Image* response) override;
  grpc::Status ListImages(grpc::ServerContext* context, const v1::ListImagesRequest* request,
                          v1::ListImagesResponse* response) override;
  grpc::Status GetImage(grpc::ServerContext* context, const v1::ImageName* request,
                        v1::Image* response) override;
  grpc::Status ResizeImage(grpc::ServerContext* context, const v1::ResizeImageRequest* request,
                           v1::Image* response) override;
  grpc::Status RemoveImage(grpc::ServerContext* context, const v1::ImageName* request,
                           v1::Image* response) override;
  grpc::Status AttachImage(grpc::ServerContext* context, const v1::AttachImageRequest* request,
                           v1::AttachImageResponse* response) override;
  grpc::Status DetachImage(grpc::ServerContext* context, const v1::DetachImageRequest* request,
                           v1::DetachImageResponse* response) override;
  grpc::Status CreateOsd(grpc::ServerContext* context, const v1::CreateOsdRequest* request,
                         v1::CreateOsdResponse* response) override;
  grpc::Status ForgetOsd(grpc::ServerContext* context, const v1::ForgetOsdRequest* request,
                         v1::ForgetOsdResponse* response) override;
  grpc::Status BootOsd(grpc::ServerContext* context, const v1::BootOsdRequest* request,
                       v1::BootOsdResponse* response) override;
  grpc::Status ReportOsd(grpc::ServerContext* context, const v1::ReportOsdRequest* request,
                         v1::ReportOsdResponse* response) override;

 private:
  Mon& mon_;
};

}  // namespace sarsen
