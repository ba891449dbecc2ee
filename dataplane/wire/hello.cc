#include "dataplane/wire/hello.h"

#include <algorithm>
#include <string>

#include "dataplane/wire/error.h"
#include "dataplane/wire/frame.h"

namespace sarsen::wire {
namespace {

constexpr std::uint8_t kVersionMin = 1;
constexpr std::uint8_t kVersionMax = kVersion;

}  // namespace

Result<HelloReply> accept_hello(const Hello& hello, const ServerIdentity& identity) {
  if (hello.cluster != identity.cluster) return fail(make_error(RemoteError::wrong_cluster));
  const std::uint8_t version = std::min(hello.version_max, kVersionMax);
  if (version < std::max(hello.version_min, kVersionMin)) {
    return fail(make_error(RemoteError::version_not_supported,
                           "versions " + std::to_string(kVersionMin) + " to " +
                               std::to_string(kVersionMax) + " are spoken here"));
  }
  const std::uint64_t missing = (hello.features_required & ~identity.features_offered) |
                                (identity.features_required & ~hello.features_offered);
  if (missing != 0) {
    return fail(make_error(RemoteError::version_not_supported,
                           "feature bits " + std::to_string(missing) + " are missing"));
  }
  HelloReply reply;
  reply.version = version;
  reply.osd = identity.osd;
  reply.shard = identity.shard;
  reply.shard_count = identity.shard_count;
  reply.start_counter = identity.start_counter;
  reply.features = hello.features_offered & identity.features_offered;
  reply.operations_max = identity.operations_max;
  reply.data_bytes_max = identity.data_bytes_max;
  return reply;
}

Result<void> accept_hello_reply(const HelloReply& reply, const Hello& hello) {
  const bool version_fine =
      reply.version >= hello.version_min && reply.version <= hello.version_max;
  const bool features_fine = (reply.features & ~hello.features_offered) == 0 &&
                             (hello.features_required & ~reply.features) == 0;
  const bool bounds_fine = reply.operations_max >= 1 && reply.data_bytes_max >= kDataBytesMax;
  if (version_fine && features_fine && bounds_fine) return {};
  return fail(make_error(RemoteError::version_not_supported,
                         "the server answered version " + std::to_string(reply.version)));
}

}  // namespace sarsen::wire
