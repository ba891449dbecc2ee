// Map entries as protobuf messages. Only for .cc files that speak gRPC or keep maps: the generated
// header is heavy. placement/map_bounds.h has the bounds.
#pragma once

#include "dataplane/base/result.h"
#include "dataplane/membership/proto/cluster_map.pb.h"
#include "dataplane/placement/cluster_map.h"

namespace sarsen {

void to_proto(const OsdEntry& entry, v1::Osd& message);
void to_proto(const PoolEntry& entry, v1::Pool& message);
void to_proto(const AttachmentEntry& entry, v1::Attachment& message);
void to_proto(const ImageEntry& entry, v1::Image& message);
void to_proto(const MapUpdate& update, v1::MapUpdate& message);

// Error: MonError::garbled, naming the entry and the field.
Result<OsdEntry> from_proto(const v1::Osd& message);
Result<PoolEntry> from_proto(const v1::Pool& message);
Result<AttachmentEntry> from_proto(const v1::Attachment& message);
Result<ImageEntry> from_proto(const v1::Image& message);
Result<MapUpdate> from_proto(const v1::MapUpdate& message);

// Sixteen bytes. Error: garbled.
Result<wire::ClusterId> cluster_from(const std::string& bytes);
std::string bytes_of(const wire::ClusterId& cluster);
Result<Uuid> uuid_from(const std::string& bytes);
std::string bytes_of(const Uuid& uuid);

}  // namespace sarsen
