#include "dataplane/membership/rpc/map_codec.h"

#include <climits>

#include "dataplane/membership/mon_error.h"
#include "dataplane/membership/rpc/map_proto.h"

namespace sarsen {

std::string encode_update(const MapUpdate& update) {
  v1::MapUpdate message;
  to_proto(update, message);
  return message.SerializeAsString();
}

Result<MapUpdate> decode_update(std::string_view bytes) {
  static_assert(kUpdateBytesMax <= INT_MAX);
  if (bytes.size() > kUpdateBytesMax) {
    return fail(make_error(MonError::garbled,
                           "an update of " + std::to_string(bytes.size()) + " bytes is too long"));
  }
  v1::MapUpdate message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return fail(make_error(MonError::garbled, "an update that is no protobuf message"));
  }
  return from_proto(message);
}

}  // namespace sarsen
