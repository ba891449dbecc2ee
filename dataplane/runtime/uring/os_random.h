// Random from the kernel (getrandom).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "dataplane/runtime/env.h"

namespace sarsen {

class OsRandom final : public Random {
 public:
  // From a small buffer that is filled by one system call.
  std::uint64_t next() override;
  // Straight from the kernel.
  void fill(std::span<std::byte> into) override;

 private:
  std::array<std::uint64_t, 32> drawn_{};
  std::size_t left_ = 0;
};

}  // namespace sarsen
