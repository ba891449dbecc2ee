// SimNetwork: listeners and connections between simulated shards, with delays from the seed.
//
// tcp: addresses are known to all nodes, unix: ones to their own node. A crash of a node resets its
// connections and frees its addresses. Which delays and breaks happen is a LinkPolicy.
#pragma once

#include <map>
#include <memory>
#include <set>

#include "tests/sim/sim_channel.h"

namespace sarsen::sim {

class SimListener;

// The wires of one simulator.
class SimNetworkHub final : public EventSink {
 public:
  SimNetworkHub(Simulator& simulator, Rng rng);
  ~SimNetworkHub();

  Simulator& simulator() { return simulator_; }
  LinkPolicy& policy() { return *policy_; }
  void set_policy(std::unique_ptr<LinkPolicy> policy) { policy_ = std::move(policy); }

  // For the parts of the network.
  void post(SimChannel& channel, Duration after, Place place, std::uint64_t what);
  void on_event(std::uint64_t argument) override;
  std::shared_ptr<SimChannel> make_channel();
  Result<Address> claim(const Address& wanted, std::uint16_t node, SimListener& listener);
  void release(const Address& address, std::uint16_t node);
  SimListener* find(const Address& address, std::uint16_t node);
  // The shard of a crashed node: its ends die.
  void drop(SimExecutor& executor);

 private:
  struct Posted {
    std::shared_ptr<SimChannel> channel;
    std::uint64_t what = 0;
  };
  static std::string key_of(const Address& address, std::uint16_t node);

  Simulator& simulator_;
  Rng rng_;
  std::unique_ptr<LinkPolicy> policy_;
  std::map<std::string, SimListener*> listeners_;
  std::map<std::uint64_t, std::weak_ptr<SimChannel>> channels_;
  std::map<std::uint64_t, Posted> posted_;
  std::uint64_t next_channel_ = 1;
  std::uint64_t next_posted_ = 1;
  std::uint32_t next_port_ = 40'000;
};

// One shard's view.
class SimNetwork final : public Network {
 public:
  SimNetwork(SimNetworkHub& hub, SimExecutor& executor, Clock& clock)
      : hub_(hub), executor_(executor), clock_(clock) {}

  Result<std::unique_ptr<Listener>> listen(Address address) override;
  Task<Result<std::unique_ptr<Connection>>> connect(Address address) override;
  // The node crashed.
  void stop();

 private:
  SimNetworkHub& hub_;
  SimExecutor& executor_;
  Clock& clock_;
};

class SimListener final : public Listener {
 public:
  SimListener(SimNetworkHub& hub, SimExecutor& executor) : hub_(hub), executor_(executor) {}
  ~SimListener() override { close(); }
  void bind(Address address) { address_ = std::move(address); }

  Task<Result<std::unique_ptr<Connection>>> accept() override;
  void close() override;
  Address address() const override { return address_; }

  SimExecutor& executor() { return executor_; }
  // A connection has come in. From an event of this listener's shard.
  void offer(std::shared_ptr<SimChannel> channel);

 private:
  struct Wait;
  SimNetworkHub& hub_;
  SimExecutor& executor_;
  Address address_;
  std::deque<std::shared_ptr<SimChannel>> backlog_;
  Wait* waiter_ = nullptr;
  bool closed_ = false;
};

}  // namespace sarsen::sim
