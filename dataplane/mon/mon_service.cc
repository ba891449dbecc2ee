#include "dataplane/mon/mon_service.h"

#include "dataplane/membership/rpc/map_proto.h"
#include "dataplane/membership/rpc/mon_channel.h"
#include "dataplane/membership/rpc/mon_proto.h"
#include "dataplane/mon/map_stream.h"

namespace sarsen {
namespace {

// Of a state that is known to have it, for a command just succeeded.
grpc::Status find_image(const MonState& state, const ImageName& name, v1::Image& response) {
  const PoolEntry* const pool = state.map.find_pool(name.pool);
  const ImageEntry* const image =
      pool == nullptr ? nullptr : state.map.find_image(pool->id, name.name);
  if (image == nullptr) {
    return to_status(make_error(MonError::not_found, "image " + name.pool + "/" + name.name));
  }
  to_proto(*image, response);
  return grpc::Status::OK;
}

}  // namespace

grpc::ServerWriteReactor<v1::MapUpdate>* MonService::WatchMap(grpc::CallbackServerContext*,
                                                              const v1::WatchMapRequest* request) {
  return start_map_stream(mon_, *request);
}

grpc::Status MonService::GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                                   v1::GetStatusResponse* response) {
  to_proto(mon_.status(), *response);
  return grpc::Status::OK;
}

// ----------------------------------------------------------------------------------------- images

grpc::Status MonService::CreateImage(grpc::ServerContext*, const v1::CreateImageRequest* request,
                                     v1::Image* response) {
  const ImageName name = from_proto(request->image());
  const auto state = mon_.run(sarsen::CreateImage{name, request->size_bytes()});
  if (!state) return to_status(state.error());
  return find_image(**state, name, *response);
}

grpc::Status MonService::ListImages(grpc::ServerContext*, const v1::ListImagesRequest* request,
                                    v1::ListImagesResponse* response) {
  const Mon::State state = mon_.state();
  const PoolEntry* const pool = state->map.find_pool(request->pool());
  if (pool == nullptr && !request->pool().empty()) {
    return to_status(make_error(MonError::not_found, "pool '" + request->pool() + "'"));
  }
  for (const auto& [id, image] : state->map.images) {
    if (pool == nullptr || image.pool == pool->id) to_proto(image, *response->add_images());
  }
  return grpc::Status::OK;
}

grpc::Status MonService::GetImage(grpc::ServerContext*, const v1::ImageName* request,
                                  v1::Image* response) {
  return find_image(*mon_.state(), from_proto(*request), *response);
}

grpc::Status MonService::ResizeImage(grpc::ServerContext*, const v1::ResizeImageRequest* request,
                                     v1::Image* response) {
  const ImageName name = from_proto(request->image());
  const auto state =
      mon_.run(sarsen::ResizeImage{name, request->size_bytes(), request->allow_shrink()});
  if (!state) return to_status(state.error());
  return find_image(**state, name, *response);
}

grpc::Status MonService::RemoveImage(grpc::ServerContext*, const v1::ImageName* request,
                                     v1::Image* response) {
  const ImageName name = from_proto(*request);
  // It may be gone at once; the answer is what it was.
  const Mon::State before = mon_.state();
  const auto state = mon_.run(sarsen::RemoveImage{name});
  if (!state) return to_status(state.error());
  if (find_image(**state, name, *response).ok()) return grpc::Status::OK;
  return find_image(*before, name, *response);
}

grpc::Status MonService::AttachImage(grpc::ServerContext*, const v1::AttachImageRequest* request,
                                     v1::AttachImageResponse* response) {
  const auto command = from_proto(*request);
  if (!command) return to_status(command.error());
  const auto state = mon_.run(*command);
  if (!state) return to_status(state.error());
  const ImageEntry& image = *(*state)->map.find_image(command->image);
  const AttachEpoch epoch =
      command->continue_epoch == AttachEpoch(0) ? image.last_attach_epoch : command->continue_epoch;
  to_proto(image, *response->mutable_image());
  to_proto(*image.find_attachment(command->holder, epoch), *response->mutable_attachment());
  response->set_map_epoch((*state)->map.epoch.value);
  return grpc::Status::OK;
}

grpc::Status MonService::DetachImage(grpc::ServerContext*, const v1::DetachImageRequest* request,
                                     v1::DetachImageResponse* response) {
  const auto state = mon_.run(from_proto(*request));
  if (!state) return to_status(state.error());
  response->set_map_epoch((*state)->map.epoch.value);
  return grpc::Status::OK;
}

// ------------------------------------------------------------------------------------------- OSDs

grpc::Status MonService::CreateOsd(grpc::ServerContext*, const v1::CreateOsdRequest* request,
                                   v1::CreateOsdResponse* response) {
  const auto device = uuid_from(request->device());
  if (!device) return to_status(device.error());
  const auto state = mon_.run(sarsen::CreateOsd{*device, request->node()});
  if (!state) return to_status(state.error());
  for (const auto& [id, osd] : (*state)->map.osds) {
    if (osd.device == *device) response->set_osd(id.value);
  }
  response->set_cluster(bytes_of((*state)->map.cluster));
  return grpc::Status::OK;
}

grpc::Status MonService::ForgetOsd(grpc::ServerContext*, const v1::ForgetOsdRequest* request,
                                   v1::ForgetOsdResponse*) {
  const auto device = uuid_from(request->device());
  if (!device) return to_status(device.error());
  const auto state = mon_.run(sarsen::ForgetOsd{OsdId(request->osd()), *device});
  return state ? grpc::Status::OK : to_status(state.error());
}

grpc::Status MonService::BootOsd(grpc::ServerContext*, const v1::BootOsdRequest* request,
                                 v1::BootOsdResponse* response) {
  const auto boot = from_proto(*request);
  if (!boot) return to_status(boot.error());
  const auto state = mon_.run(*boot);
  if (!state) return to_status(state.error());
  response->set_incarnation((*state)->map.find_osd(boot->osd)->incarnation);
  response->set_map_epoch((*state)->map.epoch.value);
  return grpc::Status::OK;
}

grpc::Status MonService::ReportOsd(grpc::ServerContext*, const v1::ReportOsdRequest* request,
                                   v1::ReportOsdResponse* response) {
  const auto report = from_proto(*request);
  if (!report) return to_status(report.error());
  const auto epoch = mon_.report(*report);
  if (!epoch) return to_status(epoch.error());
  response->set_map_epoch(epoch->value);
  return grpc::Status::OK;
}

}  // namespace sarsen
