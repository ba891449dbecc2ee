// SimRandom: a stream of the seed. Nothing secret may come from it.
#pragma once

#include <cstring>

#include "dataplane/base/rng.h"
#include "dataplane/runtime/env.h"

namespace sarsen::sim {

class SimRandom final : public Random {
 public:
  explicit SimRandom(Rng rng) : rng_(rng) {}
  std::uint64_t next() override { return rng_.next(); }
  void fill(std::span<std::byte> into) override {
    for (std::size_t at = 0; at < into.size(); at += sizeof(std::uint64_t)) {
      const std::uint64_t word = rng_.next();
      std::memcpy(into.data() + at, &word, std::min(sizeof(word), into.size() - at));
    }
  }

 private:
  Rng rng_;
};

}  // namespace sarsen::sim
