// Explorer: runs a sequence once while the disk is recorded, then opens the store on the images
// that power loss could have left, and judges each.
//
// Invariants judged
//   The store opens. Each block holds what was acknowledged, or what was under way: never anything
//   else. Accounting balances. A crash during recovery changes nothing (I13). After recovery the
//   store takes a write, a checkpoint and a restart.
//
// Repeatable: the outcome of a state depends on the seed, the sequence and the state alone.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

#include "tests/crash/crash_states.h"
#include "tests/crash/world.h"

namespace sarsen::crash {

// After so many an explorer gives up.
inline constexpr std::uint64_t kViolationsMax = 5;

struct ExplorerOptions {
  std::uint64_t seed = 1;
  std::string planted = {};
  StateLimits states = {};
  std::uint32_t points_max = 40;     // of a sequence; more are thinned out
  std::uint32_t deep_percent = 10;   // of the states are written to, checkpointed and reopened
  std::uint32_t again_percent = 10;  // of the states crash a second time during recovery
};

struct ExplorerCounts {
  std::uint64_t points = 0;
  std::uint64_t states = 0;  // judged
  std::uint64_t images = 0;  // different ones that were opened
  std::uint64_t deep = 0;
  std::uint64_t second_crashes = 0;
  std::uint64_t failed_io = 0;
  std::uint64_t violations = 0;
};

class Explorer {
 public:
  // Called with what is about to be done, as the argument of --replay: should the process die.
  using Announce = std::function<void(const std::string& replay)>;
  // Called with the argument of --replay and what is wrong.
  using Report = std::function<void(const std::string& replay, const std::string& what)>;

  Explorer(ExplorerOptions options, Announce announce, Report report);

  // All points from the last letter on: those before belong to a shorter sequence.
  void explore(const Sequence& sequence);
  // For n = 1, 1 + stride, ... each kind of failure at the n-th occasion.
  void fail_each_io(const Sequence& sequence, std::uint64_t stride);
  // "SEQUENCE/STATE[/STATE]" or "SEQUENCE!N", "!wN", "!fN", "!mN". False when the text is none.
  bool replay(std::string_view text);

  const ExplorerCounts& counts() const { return counts_; }

 private:
  // What fails: the n-th and all later I/O; or one write, one flush, one allocation alone. The
  // letter stands before n in the argument of --replay.
  enum class Failure : char { all_later = 'a', write = 'w', flush = 'f', memory = 'm' };
  struct Recording {
    sim::DiskLog log;
    History history;
    std::uint64_t last_letter_begins = 0;
    std::uint64_t io_count = 0;
    Result<void> outcome = {};
  };
  struct Opened {
    std::string violation;  // empty: it opened and balances
    Contents contents{};
  };

  struct BaseImage {
    sim::SparseImage image;
    Contents contents;
  };

  const BaseImage& base_of(Base base);
  BaseImage make_base(Base base) const;
  Recording record(const Sequence& sequence);
  void explore_state(Recording& recording, const std::string& replay, const sim::CrashState& state,
                     bool deep, bool again);
  void crash_again(const sim::SparseImage& image, const std::string& replay,
                   const Contents& contents);
  void check_second(sim::DiskLog& log, const std::string& replay, const sim::CrashState& state,
                    const Contents& contents);
  // False when the n-th occasion never came.
  bool fail_io(const Sequence& sequence, std::uint64_t nth, Failure failure);
  const Opened& opened(const sim::SparseImage& image);
  Opened open_and_look(const sim::SparseImage& image, sim::DiskLog* log) const;
  std::string use(const sim::SparseImage& image) const;
  void violation(const std::string& replay, const std::string& what);

  ExplorerOptions options_;
  Announce announce_;
  Report report_;
  ExplorerCounts counts_;
  std::map<Base, BaseImage> bases_;
  std::unordered_map<std::uint64_t, Opened> by_fingerprint_;
};

}  // namespace sarsen::crash
