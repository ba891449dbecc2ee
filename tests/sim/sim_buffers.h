// SimBuffers: aligned memory with a bound. New buffers hold rubbish drawn from the seed, so that
// code which relies on fresh memory fails, and fails the same way twice. Fails by chance (P16).
#pragma once

#include <map>
#include <vector>

#include "tests/sim/simulator.h"

namespace sarsen::sim {

class SimBuffers final : public BufferPool {
 public:
  SimBuffers(Simulator& simulator, std::uint64_t bytes_max, Rng rng);
  // Every buffer has been given back by then.
  ~SimBuffers() override;

  Result<Buffer> allocate(std::size_t bytes) override;
  std::uint64_t bytes_used() const { return bytes_used_; }

 protected:
  void release(std::byte* data, std::size_t size) override;

 private:
  Simulator& simulator_;
  std::uint64_t bytes_max_;
  std::uint64_t bytes_used_ = 0;
  Rng rng_;
  int rubbish_;
  std::map<std::size_t, std::vector<std::byte*>> free_;  // by size
};

}  // namespace sarsen::sim
