// stub
#pragma once
#include "tests/sim/sim_executor.h"
namespace sarsen::sim {
class SimNetworkHub {
 public:
  SimNetworkHub(Simulator&, Rng) {}
};
class SimNetwork final : public Network {
 public:
  SimNetwork(SimNetworkHub&, SimExecutor&) {}
  Result<std::unique_ptr<Listener>> listen(Address) override {
    return fail(
        make_error(RuntimeError::permission_denied, "the simulated network is not there yet"));
  }
  Task<Result<std::unique_ptr<Connection>>> connect(Address) override {
    co_return fail(make_error(RuntimeError::connection_refused));
  }
  void stop() {}
};
}  // namespace sarsen::sim
