#include "dataplane/client/osd_link.h"

#include <algorithm>
#include <utility>

#include "dataplane/runtime/error.h"
#include "dataplane/runtime/timeout.h"

namespace sarsen {

OsdLink::OsdLink(const Env& env, MapSource& map, wire::OsdId osd, wire::Hello hello,
                 OsdLinkLimits limits)
    : env_(env),
      map_(map),
      osd_(osd),
      hello_(hello),
      limits_(limits),
      closed_(env.executor),
      changed_(env.executor),
      scope_(env.executor) {}

Task<Result<OsdConnection>> OsdLink::connect(CancelToken token) {
  if (closed_.cancelled()) co_return fail(make_error(RuntimeError::stopped));
  if (client_ && client_->broken()) retire();
  if (!client_) {
    if (!attempting_) {
      attempting_ = true;
      scope_.spawn(attempt());
    }
    const std::uint64_t seen = attempts_;
    SARSEN_CO_TRY(co_await changed_.wait_until(
        [this, seen] { return attempts_ > seen || closed_.cancelled(); }, token));
    // Since the attempt ended, the connection may have been dropped again.
    if (!client_) co_return fail(failure_ ? *failure_ : make_error(RuntimeError::connection_reset));
  }
  co_return OsdConnection{.client = client_.get(), .generation = generation_};
}

void OsdLink::drop(std::uint64_t generation) {
  if (client_ && generation == generation_) retire();
}

void OsdLink::retire() {
  ++failures_;
  scope_.spawn(end(std::move(client_)));
}

Task<void> OsdLink::end(std::unique_ptr<wire::RpcClient> client) {
  co_await client->stop();
}

void OsdLink::close() {
  closed_.cancel(RuntimeError::stopped);
  if (client_) retire();
  changed_.notify_all();
}

Task<void> OsdLink::stop() {
  close();
  co_await scope_.join();
}

Duration OsdLink::delay() {
  if (failures_ == 0) return Duration(0);
  const std::uint32_t doublings = std::min(failures_ - 1, 20u);
  const Duration full(std::min(limits_.reconnect_delay_max.value,
                               limits_.reconnect_delay_first.value << doublings));
  const auto half = static_cast<std::uint64_t>(full.value) / 2;
  return Duration(full.value - static_cast<std::int64_t>(env_.random.next() % (half + 1)));
}

Task<void> OsdLink::attempt() {
  const Duration wait = delay();
  bool open = !closed_.cancelled();
  if (open && wait > Duration(0)) {
    open = (co_await sleep_for(env_.clock, wait, closed_.token())).has_value();
  }
  if (open) {
    auto reached = co_await reach();
    if (!reached) {
      failure_ = reached.error();
      ++failures_;
    } else if (closed_.cancelled()) {
      // Closed while we reached out.
      co_await (*reached)->stop();
    } else {
      client_ = *std::move(reached);
      ++generation_;
    }
  }
  attempting_ = false;
  ++attempts_;
  changed_.notify_all();
}

Task<Result<std::unique_ptr<wire::RpcClient>>> OsdLink::reach() {
  // Now, and not when it was asked for: a restarted OSD may listen elsewhere.
  const OsdEntry* entry = map_.current()->find_osd(osd_);
  if (entry == nullptr || entry->address.empty()) {
    co_return fail(make_error(RuntimeError::not_found, "the OSD has no address"));
  }
  auto client = co_await wire::RpcClient::connect(&env_, entry->address, hello_,
                                                  Deadline::after(env_.clock, limits_.hello_max));
  if (!client) co_return fail(std::move(client).error());
  if ((*client)->server().osd != osd_) {
    co_await (*client)->stop();
    co_return fail(make_error(RuntimeError::connection_refused, "another OSD answers there"));
  }
  co_return client;
}

}  // namespace sarsen
