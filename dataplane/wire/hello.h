// What two sides agree on before the first request. No I/O.
#pragma once

#include <cstdint>

#include "dataplane/base/result.h"
#include "dataplane/wire/message.h"

namespace sarsen::wire {

// What a server is, as far as clients need to know. `shard` serves the connection.
struct ServerIdentity {
  ClusterId cluster{};
  OsdId osd;
  ShardId shard;
  std::uint32_t shard_count = 1;
  std::uint64_t start_counter = 0;
  std::uint64_t features_offered = 0;
  std::uint64_t features_required = 0;
  // What one client may have in flight; data_bytes_max is at least kDataBytesMax.
  std::uint32_t operations_max = 256;
  std::uint64_t data_bytes_max = 32 * kMiB;
};

// Errors: wrong_cluster, version_not_supported.
Result<HelloReply> accept_hello(const Hello& hello, const ServerIdentity& identity);

// Whether a client that said `hello` can go on. Error: version_not_supported.
Result<void> accept_hello_reply(const HelloReply& reply, const Hello& hello);

}  // namespace sarsen::wire
