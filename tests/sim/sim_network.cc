#include "tests/sim/sim_network.h"

#include <cmath>

#include "dataplane/base/assert.h"

namespace sarsen::sim {
namespace {

// Microseconds within a machine, tens of them between two; a spell of slowness by chance (N1).
class DrawnDelays final : public LinkPolicy {
 public:
  explicit DrawnDelays(Simulator& simulator) : simulator_(simulator) {}
  SegmentFate on_segment(Place from, Place to, std::uint64_t bytes, Rng& rng) override {
    const double mean = from.node == to.node ? 5'000 : 30'000;
    double delay = mean - mean * std::log(1.0 - rng.unit()) + static_cast<double>(bytes) * 0.1;
    if (simulator_.roll(FaultKind::n1_delay, rng)) {
      simulator_.count(FaultKind::n1_delay);
      delay *= static_cast<double>(rng.between(10, 10'000));
    }
    return {.delay = Duration(static_cast<std::int64_t>(delay))};
  }

 private:
  Simulator& simulator_;
};

// One end of a channel. Its coroutines keep the channel, not the end, over their waits.
class SimConnection final : public Connection {
 public:
  SimConnection(std::shared_ptr<SimChannel> channel, int side)
      : channel_(std::move(channel)), side_(side) {}
  ~SimConnection() override {
    channel_->close(side_);
    channel_->detach(side_);
  }

  Task<Result<std::size_t>> receive(std::span<std::byte> into) override {
    return receive_from(channel_, side_, into);
  }
  Task<Result<void>> send(std::span<const std::span<const std::byte>> pieces) override {
    return send_into(channel_, side_, pieces);
  }
  void close() override { channel_->close(side_); }
  Address peer() const override { return channel_->peer(side_); }

 private:
  static Task<Result<std::size_t>> receive_from(std::shared_ptr<SimChannel> channel, int side,
                                                std::span<std::byte> into) {
    SARSEN_ASSERT(!into.empty(), "a receive has room");
    co_await SimChannel::Wait(channel, side, /*to_send=*/false);
    if (channel->broken(side)) co_return fail(make_error(RuntimeError::connection_reset));
    co_return channel->receive_some(side, into);
  }
  static Task<Result<void>> send_into(std::shared_ptr<SimChannel> channel, int side,
                                      std::span<const std::span<const std::byte>> pieces) {
    for (std::span<const std::byte> piece : pieces) {
      while (!piece.empty()) {
        co_await SimChannel::Wait(channel, side, /*to_send=*/true);
        if (channel->broken(side) || channel->ended(side)) {
          co_return fail(make_error(RuntimeError::connection_reset));
        }
        piece = piece.subspan(channel->send_some(side, piece));
      }
    }
    co_return Result<void>();
  }

  std::shared_ptr<SimChannel> channel_;
  int side_;
};

}  // namespace

// -------------------------------------------------------------------------------------------- hub

SimNetworkHub::SimNetworkHub(Simulator& simulator, Rng rng)
    : simulator_(simulator), rng_(rng), policy_(std::make_unique<DrawnDelays>(simulator)) {}

SimNetworkHub::~SimNetworkHub() = default;

void SimNetworkHub::post(SimChannel& channel, Duration after, Place place, std::uint64_t what) {
  posted_[next_posted_] = {channel.shared_from_this(), what};
  simulator_.post(after, EventKind::network, place, *this, next_posted_++);
}

void SimNetworkHub::on_event(std::uint64_t argument) {
  const auto found = posted_.find(argument);
  const Posted posted = std::move(found->second);
  posted_.erase(found);
  simulator_.trace(EventKind::outcome, simulator_.current_place(), posted.channel->id(),
                   posted.what);
  posted.channel->on_event(posted.what);
}

std::shared_ptr<SimChannel> SimNetworkHub::make_channel() {
  std::erase_if(channels_, [](const auto& entry) { return entry.second.expired(); });
  auto channel = std::make_shared<SimChannel>(*this, next_channel_, rng_.split());
  channels_[next_channel_++] = channel;
  return channel;
}

std::string SimNetworkHub::key_of(const Address& address, std::uint16_t node) {
  return address.starts_with("unix:") ? std::to_string(node) + " " + address : address;
}

Result<Address> SimNetworkHub::claim(const Address& wanted, std::uint16_t node,
                                     SimListener& listener) {
  Address address = wanted;
  if (address.starts_with("tcp:")) {
    if (address.ends_with(":0")) {
      address = address.substr(0, address.size() - 1) + std::to_string(next_port_++);
    }
  } else if (!address.starts_with("unix:")) {
    return fail(make_error(RuntimeError::address_invalid, wanted));
  }
  if (!listeners_.emplace(key_of(address, node), &listener).second) {
    return fail(make_error(RuntimeError::address_in_use, address));
  }
  return address;
}

void SimNetworkHub::release(const Address& address, std::uint16_t node) {
  listeners_.erase(key_of(address, node));
}

SimListener* SimNetworkHub::find(const Address& address, std::uint16_t node) {
  const auto found = listeners_.find(key_of(address, node));
  return found == listeners_.end() ? nullptr : found->second;
}

void SimNetworkHub::drop(SimExecutor& executor) {
  for (const auto& [id, weak] : channels_) {
    const std::shared_ptr<SimChannel> channel = weak.lock();
    if (!channel) continue;
    for (const int side : {0, 1}) {
      if (channel->executor(side) == &executor) channel->die(side);
    }
  }
  std::erase_if(listeners_,
                [&](const auto& entry) { return &entry.second->executor() == &executor; });
}

// ---------------------------------------------------------------------------------------- network

Result<std::unique_ptr<Listener>> SimNetwork::listen(Address address) {
  auto listener = std::make_unique<SimListener>(hub_, executor_);
  Result<Address> claimed = hub_.claim(address, executor_.place().node, *listener);
  if (!claimed) return fail(std::move(claimed).error());
  listener->bind(*std::move(claimed));
  return std::unique_ptr<Listener>(std::move(listener));
}

Task<Result<std::unique_ptr<Connection>>> SimNetwork::connect(Address address) {
  const std::shared_ptr<SimChannel> channel = hub_.make_channel();
  Rng rng(channel->id() ^ hub_.simulator().seed());
  const Place here = executor_.place();
  co_await clock_.sleep(hub_.policy().on_segment(here, here, 0, rng).delay);
  // The listener may have gone, or come, while the request was on the way.
  SimListener* listener = hub_.find(address, here.node);
  if (listener == nullptr) {
    co_return fail(make_error(RuntimeError::connection_refused, address));
  }
  channel->attach(0, executor_, address);
  channel->attach(1, listener->executor(),
                  "sim:" + std::to_string(here.node) + ":" + std::to_string(channel->id()));
  hub_.simulator().call_after(nanoseconds(1'000), [&hub = hub_, channel, address, here] {
    SimListener* found = hub.find(address, here.node);
    if (found == nullptr || channel->executor(1) != &found->executor()) {
      channel->die(1);  // nobody will ever accept it
      return;
    }
    hub.simulator().run_at(found->executor().place(), [&] { found->offer(channel); });
  });
  co_return std::unique_ptr<Connection>(std::make_unique<SimConnection>(channel, 0));
}

void SimNetwork::stop() {
  hub_.drop(executor_);
}

// --------------------------------------------------------------------------------------- listener

struct SimListener::Wait {
  explicit Wait(SimListener& owner) : listener(&owner) {}
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;
  ~Wait() {
    if (listener != nullptr && listener->waiter_ == this) listener->waiter_ = nullptr;
  }
  bool await_ready() const { return listener->closed_ || !listener->backlog_.empty(); }
  void await_suspend(std::coroutine_handle<> waiter) {
    SARSEN_ASSERT(listener->waiter_ == nullptr, "one accept may be in flight");
    handle = waiter;
    listener->waiter_ = this;
  }
  void await_resume() const {}
  SimListener* listener;  // null once the listener closed: it may be gone
  std::coroutine_handle<> handle;
};

Task<Result<std::unique_ptr<Connection>>> SimListener::accept() {
  Wait wait(*this);
  co_await wait;
  // When the listener closed while we waited, it may be gone: `this` is not touched then.
  if (wait.listener == nullptr || closed_) co_return fail(make_error(RuntimeError::stopped));
  const std::shared_ptr<SimChannel> channel = std::move(backlog_.front());
  backlog_.pop_front();
  co_return std::unique_ptr<Connection>(std::make_unique<SimConnection>(channel, 1));
}

void SimListener::offer(std::shared_ptr<SimChannel> channel) {
  backlog_.push_back(std::move(channel));
  if (Wait* woken = std::exchange(waiter_, nullptr)) executor_.schedule(woken->handle);
}

void SimListener::close() {
  if (std::exchange(closed_, true)) return;
  if (!address_.empty() && !executor_.abandoned()) {
    hub_.release(address_, executor_.place().node);
    for (const auto& channel : backlog_) channel->close(1);
  }
  if (Wait* woken = std::exchange(waiter_, nullptr)) {
    woken->listener = nullptr;
    executor_.schedule(woken->handle);
  }
}

}  // namespace sarsen::sim
