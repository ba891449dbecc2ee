#include "tests/sim/simulator.h"

#include <algorithm>
#include <bit>

#include "dataplane/base/assert.h"
#include "tests/sim/sim_disk.h"
#include "tests/sim/sim_network.h"

namespace sarsen::sim {

std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = text.size();
  for (const char c : text) hash = mix(hash, static_cast<unsigned char>(c));
  return hash;
}

// Keeps the functions of call_after() and runs each once.
class Simulator::HarnessCalls final : public EventSink {
 public:
  void on_event(std::uint64_t argument) override {
    const auto found = calls_.find(argument);
    const std::function<void()> action = std::move(found->second);
    calls_.erase(found);
    action();
  }
  std::uint64_t keep(std::function<void()> action) {
    calls_.emplace(next_, std::move(action));
    return next_++;
  }

 private:
  std::map<std::uint64_t, std::function<void()>> calls_;
  std::uint64_t next_ = 0;
};

Simulator::Simulator(SimulatorOptions options)
    : options_(std::move(options)),
      rng_(options_.seed),
      tie_rng_(rng_.split()),
      point_rng_(rng_.split()),
      // The world did not begin when the program did.
      now_(seconds(1000).value),
      calls_(std::make_unique<HarnessCalls>()) {
  Rng swarm_rng = rng_.split();
  swarm_ = draw_swarm(swarm_rng, options_.profile);
  network_ = std::make_unique<SimNetworkHub>(*this, rng_.split());
}

Simulator::~Simulator() {
  set_faults_on(false);
  for (const auto& node : nodes_) {
    if (node->up()) node->crash(CrashKind::process_kill);
  }
}

SimDisk& Simulator::add_disk(SimDiskOptions options) {
  disks_.push_back(std::make_unique<SimDisk>(*this, std::move(options), rng_.split()));
  return *disks_.back();
}

SimNode& Simulator::add_node(SimNodeOptions options) {
  const auto id = static_cast<std::uint16_t>(nodes_.size());
  nodes_.push_back(std::make_unique<SimNode>(*this, id, std::move(options), rng_.split()));
  return *nodes_.back();
}

EventToken Simulator::post(Duration after, EventKind kind, Place place, EventSink& sink,
                           std::uint64_t argument) {
  SARSEN_ASSERT(after.value >= 0, "nothing happens in the past");
  std::uint32_t slot;
  if (free_slots_.empty()) {
    slot = static_cast<std::uint32_t>(slots_.size());
    slots_.emplace_back();
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  Event& event = slots_[slot];
  event.sink = &sink;
  event.argument = argument;
  event.sequence = sequence_;
  event.kind = kind;
  event.live = true;
  event.place = place;
  ++event.generation;
  queue_.push_back(
      {now_.value + after.value, sequence_++, static_cast<std::uint32_t>(tie_rng_.next()), slot});
  std::push_heap(queue_.begin(), queue_.end(), Later{});
  return (std::uint64_t{event.generation} << 32) | slot;
}

void Simulator::cancel(EventToken token) {
  if (token == 0) return;
  Event& event = slots_[static_cast<std::uint32_t>(token)];
  SARSEN_ASSERT(event.live && event.generation == token >> 32,
                "an event is cancelled before it ran");
  event.live = false;  // its key stays in the heap until its time comes
}

void Simulator::call_after(Duration after, std::function<void()> action) {
  post(after, EventKind::harness, Place{}, *calls_, calls_->keep(std::move(action)));
}

void Simulator::trace(EventKind kind, Place place, std::uint64_t a, std::uint64_t b,
                      std::uint64_t c) {
  const std::uint64_t where = (std::uint64_t{place.node} << 32) |
                              (std::uint64_t{place.shard} << 16) | static_cast<std::uint64_t>(kind);
  std::uint64_t hash = mix(trace_hash_, static_cast<std::uint64_t>(now_.value));
  hash = mix(hash, where);
  hash = mix(hash, a);
  hash = mix(hash, b);
  trace_hash_ = mix(hash, c);
  if (options_.trace_file != nullptr) {
    std::fprintf(options_.trace_file, "%ld node %u shard %u kind %u: %lx %lx %lx\n", now_.value,
                 place.node, place.shard, static_cast<unsigned>(kind), a, b, c);
  }
}

bool Simulator::step() {
  while (!queue_.empty()) {
    std::pop_heap(queue_.begin(), queue_.end(), Later{});
    const Key key = queue_.back();
    queue_.pop_back();
    free_slots_.push_back(key.slot);
    const Event event = slots_[key.slot];
    slots_[key.slot].live = false;
    if (!event.live) continue;
    now_ = BootTime(key.time);
    run_event(event);
    return true;
  }
  return false;
}

void Simulator::run_event(const Event& event) {
  ++events_run_;
  trace(event.kind, event.place, event.sequence);
  running_ = true;
  current_ = event.place;
  event.sink->on_event(event.argument);
  current_ = Place{};
  running_ = false;
  crash_doomed();
}

void Simulator::run_at(Place place, const std::function<void()>& action) {
  const Place place_before = std::exchange(current_, place);
  const bool running_before = std::exchange(running_, true);
  action();
  current_ = place_before;
  running_ = running_before;
  if (!running_) crash_doomed();
}

bool Simulator::run_until(const std::function<bool()>& done, Duration limit) {
  const BootTime end = now_ + limit;
  while (!done()) {
    if (failed() || now_ > end || !step()) return done();
  }
  return true;
}

void Simulator::run_for(Duration duration) {
  const auto over = std::make_shared<bool>(false);
  call_after(duration, [over] { *over = true; });
  while (!*over && !failed() && step()) {
  }
}

void Simulator::fail(std::string what) {
  if (!failure_) failure_ = {std::move(what), events_run_};
}

void Simulator::crash_soon(SimNode& node) {
  if (std::find(doomed_.begin(), doomed_.end(), &node) == doomed_.end()) doomed_.push_back(&node);
}

void Simulator::crash_doomed() {
  while (!doomed_.empty()) {
    SimNode* node = doomed_.back();
    doomed_.pop_back();
    node->tear_down();
  }
}

bool Simulator::fault_point_fires(std::string_view name) {
  auto found = fault_points_.find(name);
  if (found == fault_points_.end()) {
    // From the seed and the name alone: which points exist does not change which are armed.
    Rng rng(options_.seed ^ hash_of(name));
    const double rate = rng.chance(0.25) ? std::array{0.25, 0.05, 0.01}[rng.below(3)] : 0.0;
    found = fault_points_.emplace(name, rate).first;
  }
  if (!faults_on_ || swarm_.rate(FaultKind::p16_no_memory) <= 0 || found->second <= 0) return false;
  if (!point_rng_.chance(found->second)) return false;
  count(FaultKind::p16_no_memory);
  return true;
}

bool Simulator::planted(std::string_view name) {
  if (options_.planted != name) return false;
  ++planted_uses_;
  return true;
}

void Simulator::probe(std::string_view name) {
  const auto found = probes_.find(name);
  if (found != probes_.end()) {
    ++found->second;
  } else {
    probes_.emplace(name, 1);
  }
}

}  // namespace sarsen::sim
