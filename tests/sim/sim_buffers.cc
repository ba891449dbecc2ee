#include "tests/sim/sim_buffers.h"

#include <cstdlib>
#include <cstring>

namespace sarsen::sim {

SimBuffers::SimBuffers(Simulator& simulator, std::uint64_t bytes_max, Rng rng)
    : simulator_(simulator), bytes_max_(bytes_max), rng_(rng) {
  rubbish_ = static_cast<int>(rng_.between(1, 255));
}

SimBuffers::~SimBuffers() {
  SARSEN_ASSERT(bytes_used_ == 0, "buffers die before their pool");
  for (auto& [size, list] : free_) {
    for (std::byte* data : list) std::free(data);
  }
}

Result<Buffer> SimBuffers::allocate(std::size_t bytes) {
  const std::size_t size = round_up(bytes, kBlockBytes);
  if (simulator_.allocation_fails()) {
    return fail(make_error(RuntimeError::out_of_memory, "by script"));
  }
  if (simulator_.roll(FaultKind::p16_no_memory, rng_)) {
    simulator_.count(FaultKind::p16_no_memory);
    return fail(make_error(RuntimeError::out_of_memory, "by the simulator's choice"));
  }
  if (size > bytes_max_ - bytes_used_) return fail(make_error(RuntimeError::out_of_memory));
  std::byte* data;
  auto& list = free_[size];
  if (list.empty()) {
    data = static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, size));
    SARSEN_ASSERT(data != nullptr, "the machine has memory for the simulator");
  } else {
    data = list.back();
    list.pop_back();
  }
  std::memset(data, rubbish_, size);
  bytes_used_ += size;
  return Buffer(*this, data, size);
}

void SimBuffers::release(std::byte* data, std::size_t size) {
  bytes_used_ -= size;
  free_[size].push_back(data);
}

}  // namespace sarsen::sim
