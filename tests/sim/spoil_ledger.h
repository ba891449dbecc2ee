// SpoilLedger: what a simulated disk destroyed by itself, so that a judge can tell a legal
// `corrupt` or `io_error` answer from a wrong one. Kept per 4 KiB block of the device.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "dataplane/runtime/env.h"
#include "tests/sim/fault_kinds.h"

namespace sarsen::sim {

struct Spoil {
  FaultKind kind;
  ByteOffset offset;
  std::uint64_t size = 0;
  BootTime time;
  // The stored bytes are intact: one answer was wrong or missing.
  bool transient = false;
};

class SpoilLedger {
 public:
  void record(const Spoil& spoil);
  // The range was written anew and reached stable media.
  void heal(ByteOffset offset, std::uint64_t size);

  // Whether a block of the range was spoilt and has not been healed.
  bool spoilt(ByteOffset offset, std::uint64_t size) const;
  bool any_spoilt() const { return !blocks_.empty(); }
  // Everything that ever happened, healed or not, in order.
  const std::vector<Spoil>& history() const { return history_; }
  // Whether a spoil, transient ones included, happened at or after `time`.
  bool since(BootTime time) const { return !history_.empty() && history_.back().time >= time; }

 private:
  std::map<std::uint64_t, std::size_t> blocks_;  // block number to index in history_
  std::vector<Spoil> history_;
};

}  // namespace sarsen::sim
