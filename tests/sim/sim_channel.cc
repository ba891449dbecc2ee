#include "tests/sim/sim_channel.h"

#include <algorithm>
#include <utility>

#include "tests/sim/sim_network.h"

namespace sarsen::sim {
namespace {
// Event arguments: the end that something reaches, and what.
constexpr std::uint64_t kSegment = 0;
constexpr std::uint64_t kWindow = 2;
}  // namespace

void SimChannel::attach(int side, SimExecutor& executor, Address peer) {
  ends_[side].executor = &executor;
  ends_[side].place = executor.place();
  ends_[side].peer = std::move(peer);
}

std::size_t SimChannel::send_some(int side, std::span<const std::byte> bytes) {
  End& from = ends_[side];
  const std::uint64_t room = kWindowBytes - std::min(from.unreceived, kWindowBytes);
  std::size_t length = std::min<std::uint64_t>({bytes.size(), room, kSegmentBytesMax});
  // Streams have no boundaries: sometimes a segment is cut where it helps nobody.
  if (length > 1 && rng_.chance(0.1)) length = rng_.between(1, length);
  from.unreceived += length;
  post_segment(1 - side, {.bytes = {bytes.begin(), bytes.begin() + static_cast<long>(length)}});
  return length;
}

void SimChannel::post_segment(int to, Segment segment) {
  End& end = ends_[to];
  const SegmentFate fate =
      hub_.policy().on_segment(ends_[1 - to].place, end.place, segment.bytes.size(), rng_);
  segment.reset = segment.reset || fate.reset;
  if (fate.flip_byte && !segment.bytes.empty()) {
    segment.bytes[rng_.below(segment.bytes.size())] ^= std::byte{0x10};
  }
  const BootTime now = hub_.simulator().now();
  const BootTime arrival = std::max(end.last_arrival, now + fate.delay);
  end.last_arrival = arrival;
  end.incoming.push_back(std::move(segment));
  hub_.post(*this, arrival - now, end.place, kSegment | static_cast<std::uint64_t>(to));
}

std::size_t SimChannel::receive_some(int side, std::span<std::byte> into) {
  End& end = ends_[side];
  std::size_t length = std::min(into.size(), end.arrived.size());
  if (length > 1 && rng_.chance(0.1)) length = rng_.between(1, length);
  std::copy_n(end.arrived.begin(), length, into.begin());
  end.arrived.erase(end.arrived.begin(), end.arrived.begin() + static_cast<long>(length));
  ends_[1 - side].given_back += length;
  if (length != 0) {
    const Duration back(static_cast<std::int64_t>(rng_.below(20'000)));
    hub_.post(*this, back, ends_[1 - side].place, kWindow | static_cast<std::uint64_t>(1 - side));
  }
  return length;
}

void SimChannel::close(int side) {
  End& end = ends_[side];
  if (std::exchange(end.closed, true)) return;
  end.broken = true;
  post_segment(1 - side, {.bytes = {}, .end = true});
  wake(end.sender);
  wake(end.receiver);
}

void SimChannel::die(int side) {
  End& end = ends_[side];
  end.executor = nullptr;
  end.sender = end.receiver = nullptr;
  if (std::exchange(end.closed, true)) return;
  end.broken = true;
  const bool reset = rng_.chance(0.5);
  post_segment(1 - side, {.bytes = {}, .end = !reset, .reset = reset});
}

void SimChannel::on_event(std::uint64_t argument) {
  const int side = static_cast<int>(argument & 1);
  End& end = ends_[side];
  if ((argument & kWindow) == 0) {
    arrive(side);
  } else {
    end.unreceived -= std::exchange(end.given_back, 0);
    // An earlier event may have taken what this one was for.
    if (can_send(side)) wake(end.sender);
  }
}

void SimChannel::arrive(int to) {
  End& end = ends_[to];
  // One event per segment, and each takes the oldest: order holds.
  Segment segment = std::move(end.incoming.front());
  end.incoming.pop_front();
  if (end.closed) return;
  end.arrived.insert(end.arrived.end(), segment.bytes.begin(), segment.bytes.end());
  if (segment.reset) {
    end.broken = true;
    end.arrived.clear();
    wake(end.sender);
  }
  if (segment.end) {
    // The peer has closed both directions: what we send from now on nobody takes.
    end.peer_ended = true;
    wake(end.sender);
  }
  wake(end.receiver);
}

void SimChannel::wake(Wait*& waiter) {
  Wait* woken = std::exchange(waiter, nullptr);
  if (woken == nullptr) return;
  SimExecutor* const executor = ends_[woken->side_].executor;
  if (executor != nullptr) executor->schedule(woken->handle_);
}

SimChannel::Wait*& SimChannel::Wait::slot() const {
  End& end = channel_->ends_[side_];
  return to_send_ ? end.sender : end.receiver;
}

bool SimChannel::Wait::await_ready() const {
  const End& end = channel_->ends_[side_];
  if (end.broken || (to_send_ && end.peer_ended)) return true;
  return to_send_ ? channel_->can_send(side_) : channel_->can_receive(side_);
}

void SimChannel::Wait::await_suspend(std::coroutine_handle<> handle) {
  SARSEN_ASSERT(slot() == nullptr, "one send and one receive may be in flight");
  handle_ = handle;
  slot() = this;
}

}  // namespace sarsen::sim
