// SimChannel: one connection between two simulated shards: two byte streams, each cut into segments
// that arrive later, in order. Shared by its two ends and by the hub; it outlives whichever dies.
//
// Bounded by  kWindowBytes per direction, sent and not yet received.
#pragma once

#include <coroutine>
#include <deque>
#include <memory>
#include <vector>

#include "tests/sim/sim_executor.h"

namespace sarsen::sim {

class SimNetworkHub;

// What the network does with a segment. The later kinds of network faults (N1 to N12) are made of
// these: a lost packet is a late segment, a partition holds segments until it heals.
struct SegmentFate {
  Duration delay;
  bool reset = false;      // the connection breaks; what was sent before may arrive
  bool flip_byte = false;  // one byte changes on the way
};

class LinkPolicy {
 public:
  virtual ~LinkPolicy() = default;
  virtual SegmentFate on_segment(Place from, Place to, std::uint64_t bytes, Rng& rng) = 0;
};

class SimChannel final : public EventSink, public std::enable_shared_from_this<SimChannel> {
 public:
  static constexpr std::uint64_t kWindowBytes = 256 * kKiB;
  static constexpr std::uint64_t kSegmentBytesMax = 64 * kKiB;

  // One direction. `side` below is the end that sends into it.
  struct Segment {
    std::vector<std::byte> bytes;
    bool end = false;    // the sender closed
    bool reset = false;  // the connection broke
  };

  SimChannel(SimNetworkHub& hub, std::uint64_t id, Rng rng) : hub_(hub), id_(id), rng_(rng) {}

  std::uint64_t id() const { return id_; }
  // The executor that an end's coroutines run on; null before it was accepted and after its death.
  void attach(int side, SimExecutor& executor, Address peer);
  const Address& peer(int side) const { return ends_[side].peer; }

  // Takes as much as the window has room for.
  std::size_t send_some(int side, std::span<const std::byte> bytes);
  // What has arrived; 0 when nothing has.
  std::size_t receive_some(int side, std::span<std::byte> into);
  bool ended(int side) const { return ends_[side].peer_ended && ends_[side].arrived.empty(); }
  bool broken(int side) const { return ends_[side].broken; }
  bool can_send(int side) const { return ends_[side].unreceived < kWindowBytes; }
  bool can_receive(int side) const { return !ends_[side].arrived.empty() || ended(side); }
  // This end closes: the peer reads what is on the way, then the end.
  void close(int side);
  // The process of this end died: its peer hears of a reset, or of an end, a little later.
  void die(int side);
  void detach(int side) { ends_[side].executor = nullptr; }
  SimExecutor* executor(int side) { return ends_[side].executor; }

  // Waits of an end's coroutine. Through shared ownership, because the end may die first.
  class Wait {
   public:
    Wait(std::shared_ptr<SimChannel> channel, int side, bool to_send)
        : channel_(std::move(channel)), side_(side), to_send_(to_send) {}
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;
    ~Wait() {
      if (slot() == this) slot() = nullptr;
    }
    bool await_ready() const;
    void await_suspend(std::coroutine_handle<> handle);
    void await_resume() const {}

   private:
    friend class SimChannel;
    Wait*& slot() const;
    std::shared_ptr<SimChannel> channel_;
    int side_;
    bool to_send_;
    std::coroutine_handle<> handle_;
  };

  void on_event(std::uint64_t argument) override;

 private:
  struct End {
    SimExecutor* executor = nullptr;
    Place place;
    Address peer;
    std::deque<std::byte> arrived;
    std::deque<Segment> incoming;  // on the way to this end
    BootTime last_arrival;         // of what is on the way to this end
    std::uint64_t unreceived = 0;  // bytes that this end sent and the other did not take
    std::uint64_t given_back = 0;  // window on the way back to this end
    bool closed = false;
    bool peer_ended = false;
    bool broken = false;
    Wait* sender = nullptr;
    Wait* receiver = nullptr;
  };
  void post_segment(int to, Segment segment);
  void arrive(int to);
  void wake(Wait*& waiter);

  SimNetworkHub& hub_;
  std::uint64_t id_;
  Rng rng_;
  End ends_[2];
};

}  // namespace sarsen::sim
