// OsdLink: the connection of one session to one OSD, made anew when it went away.
//
// Lifecycle  Idle until somebody asks for a connection. close() ends the calls under way and every
//            wait, for ever; `co_await stop()` before destruction.
// Shard      One. Borrows Env and MapSource.
// Waiting    Attempts are apart by a delay that doubles with each failure up to
//            reconnect_delay_max, minus up to half of it by chance, so that the clients of an OSD
//            that came back do not all come at once.
// Errors     The token's reason; why the latest attempt failed: look at the map, and ask again.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "dataplane/membership/map_source.h"
#include "dataplane/runtime/cancel.h"
#include "dataplane/runtime/condition.h"
#include "dataplane/runtime/env.h"
#include "dataplane/runtime/scope.h"
#include "dataplane/wire/rpc_client.h"

namespace sarsen {

struct OsdLinkLimits {
  Duration hello_max = seconds(5);
  Duration reconnect_delay_first = milliseconds(5);
  Duration reconnect_delay_max = milliseconds(500);
};

// A connection that has said hello. The client lives until the calls on it have returned.
struct OsdConnection {
  wire::RpcClient* client = nullptr;
  std::uint64_t generation = 0;  // counts the connections of a link
};

class OsdLink {
 public:
  OsdLink(const Env& env, MapSource& map, wire::OsdId osd, wire::Hello hello,
          OsdLinkLimits limits = {});

  Task<Result<OsdConnection>> connect(CancelToken token);
  // A call on it met silence or the end of the connection: the next connect() makes another.
  void drop(std::uint64_t generation);
  // Whether the connection may be used: asked after each wait, for it is destroyed when it was
  // dropped and no call is on it.
  bool has(std::uint64_t generation) const {
    return client_ != nullptr && generation == generation_;
  }
  // A call on it was answered: the next attempt needs no delay.
  void answered() { failures_ = 0; }
  void close();
  Task<void> stop();

  std::uint64_t connections_made() const { return generation_; }

 private:
  Task<void> attempt();
  Task<Result<std::unique_ptr<wire::RpcClient>>> reach();
  Duration delay();
  void retire();
  static Task<void> end(std::unique_ptr<wire::RpcClient> client);

  const Env& env_;
  MapSource& map_;
  const wire::OsdId osd_;
  const wire::Hello hello_;
  const OsdLinkLimits limits_;
  CancelSource closed_;
  std::unique_ptr<wire::RpcClient> client_;
  std::uint64_t generation_ = 0;
  std::uint64_t attempts_ = 0;  // that ended
  std::uint32_t failures_ = 0;  // since the last answer
  bool attempting_ = false;
  std::optional<Error> failure_;
  Condition changed_;
  Scope scope_;
};

}  // namespace sarsen
