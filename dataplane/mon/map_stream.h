// One WatchMap call: sends the updates that its client lacks, one at a time. Heavy to include.
//
// Lifecycle  Lives until gRPC says that the call is over, and every notification under way ended.
// Bounded by One update in flight; a slow client gets the later ones when it has taken that.
#pragma once

#include <grpcpp/support/server_callback.h>

#include "dataplane/membership/proto/mon.pb.h"
#include "dataplane/mon/mon.h"

namespace sarsen {

// Given to gRPC, which calls it until OnDone.
grpc::ServerWriteReactor<v1::MapUpdate>* start_map_stream(Mon& mon,
                                                          const v1::WatchMapRequest& request);

}  // namespace sarsen
