#include "tests/crash/crash_states.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <utility>

namespace sarsen::crash {
namespace {

using sim::CrashState;
using sim::SectorFate;
using Fates = std::vector<SectorFate>;

class Chooser {
 public:
  Chooser(sim::DiskLog& log, std::uint64_t point, const StateLimits& limits, Rng& rng)
      : point_(point), limits_(limits), rng_(rng), count_(log.pending_sectors(point).size()) {
    find_open(log);
  }

  std::vector<CrashState> choose() {
    add(all(SectorFate::old_bytes));
    if (count_ == 0) return std::move(states_);
    add(all(SectorFate::new_bytes));
    if (open_.size() <= limits_.subset_sectors_max) {
      add_subsets();
    } else {
      add_by_write();
      for (std::uint32_t i = 0; i < limits_.random_states; ++i) add_random(0);
    }
    for (const auto& sectors : chosen_writes()) add_garbage(sectors);
    for (std::uint32_t i = 0; i < limits_.random_states; ++i) add_random(0.1);
    return std::move(states_);
  }

 private:
  using Sectors = std::vector<std::size_t>;  // positions in the list of pending sectors

  // Sectors whose new bytes are not what would be there without them.
  void find_open(sim::DiskLog& log) {
    const std::vector<sim::PendingSector> pending = log.pending_sectors(point_);
    const sim::SparseImage before = log.build_image({point_, {}});
    std::map<std::uint64_t, std::uint32_t> writers;
    const auto place = [&](const sim::PendingSector& sector) {
      return log.entries()[sector.entry].offset + sector.sector * sim::kSectorBytes;
    };
    for (const auto& sector : pending) ++writers[place(sector)];
    std::array<std::byte, sim::kSectorBytes> was;
    for (std::size_t i = 0; i < pending.size(); ++i) {
      const sim::DiskLogEntry& entry = log.entries()[pending[i].entry];
      before.read(place(pending[i]), was);
      std::array<std::byte, sim::kSectorBytes> becomes{};
      if (!entry.data.empty()) {
        std::copy_n(
            entry.data.begin() + static_cast<std::ptrdiff_t>(pending[i].sector * sim::kSectorBytes),
            sim::kSectorBytes, becomes.begin());
      }
      if (becomes == was && writers[place(pending[i])] == 1) continue;
      open_.push_back(i);
      if (writes_.empty() || last_entry_ != pending[i].entry) writes_.emplace_back();
      last_entry_ = pending[i].entry;
      writes_.back().push_back(i);
    }
  }

  Fates all(SectorFate fate) const { return Fates(count_, fate); }
  void add(Fates fates) { states_.push_back({point_, std::move(fates)}); }

  void add_subsets() {
    for (std::uint64_t subset = 1; subset + 1 < std::uint64_t{1} << open_.size(); ++subset) {
      Fates fates = all(SectorFate::old_bytes);
      for (std::size_t i = 0; i < open_.size(); ++i) {
        if ((subset >> i & 1) != 0) fates[open_[i]] = SectorFate::new_bytes;
      }
      add(std::move(fates));
    }
  }

  std::vector<Sectors> chosen_writes() {
    std::vector<Sectors> chosen = writes_;
    while (chosen.size() > limits_.entries_max) {
      chosen.erase(chosen.begin() + static_cast<std::ptrdiff_t>(rng_.below(chosen.size())));
    }
    return chosen;
  }

  static void set(Fates& fates, const Sectors& sectors, SectorFate fate) {
    for (const std::size_t i : sectors) fates[i] = fate;
  }

  void add_by_write() {
    for (const Sectors& sectors : chosen_writes()) {
      Fates dropped = all(SectorFate::new_bytes);
      set(dropped, sectors, SectorFate::old_bytes);
      add(std::move(dropped));
      Fates alone = all(SectorFate::old_bytes);
      set(alone, sectors, SectorFate::new_bytes);
      add(std::move(alone));
      Fates prefix = all(SectorFate::old_bytes);
      std::fill_n(prefix.begin(), sectors.back() + 1, SectorFate::new_bytes);
      add(std::move(prefix));
      add_torn(sectors);
    }
  }

  // One part of the write is new, the other old; the writes around it likewise.
  void add_torn(const Sectors& sectors) {
    if (sectors.size() < 2) return;
    const std::size_t cut = 1 + rng_.below(sectors.size() - 1);
    const Sectors tail(sectors.begin() + static_cast<std::ptrdiff_t>(cut), sectors.end());
    Fates head_new = all(SectorFate::new_bytes);
    set(head_new, tail, SectorFate::old_bytes);
    add(std::move(head_new));
    Fates tail_new = all(SectorFate::old_bytes);
    set(tail_new, tail, SectorFate::new_bytes);
    add(std::move(tail_new));
  }

  void add_garbage(const Sectors& sectors) {
    Fates one = all(SectorFate::new_bytes);
    one[sectors[rng_.below(sectors.size())]] = SectorFate::garbage;
    add(std::move(one));
    Fates whole = all(SectorFate::old_bytes);
    set(whole, sectors, SectorFate::garbage);
    add(std::move(whole));
  }

  void add_random(double garbage_rate) {
    Fates fates = all(SectorFate::old_bytes);
    const double new_rate = rng_.unit();
    for (SectorFate& fate : fates) {
      if (rng_.chance(new_rate)) fate = SectorFate::new_bytes;
      if (garbage_rate > 0 && rng_.chance(garbage_rate)) fate = SectorFate::garbage;
    }
    add(std::move(fates));
  }

  std::uint64_t point_;
  const StateLimits& limits_;
  Rng& rng_;
  std::size_t count_;
  Sectors open_;
  std::vector<Sectors> writes_;
  sim::DiskLogId last_entry_ = 0;
  std::vector<CrashState> states_;
};

constexpr std::string_view kFateLetters = "ong";

bool take_number(std::string_view& text, std::uint64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

}  // namespace

std::vector<CrashState> crash_states(sim::DiskLog& log, std::uint64_t point,
                                     const StateLimits& limits, Rng& rng) {
  return Chooser(log, point, limits, rng).choose();
}

std::string to_text(const CrashState& state) {
  std::string text = std::to_string(state.point) + "@";
  for (std::size_t i = 0; i < state.fates.size();) {
    const std::size_t first = i;
    while (i < state.fates.size() && state.fates[i] == state.fates[first]) ++i;
    text += std::to_string(i - first) + kFateLetters[static_cast<std::size_t>(state.fates[first])];
  }
  return text;
}

std::optional<CrashState> state_of(std::string_view text) {
  constexpr std::uint64_t kSectorsMax = 1 << 20;
  CrashState state;
  if (!take_number(text, state.point) || !text.starts_with('@')) return std::nullopt;
  for (text.remove_prefix(1); !text.empty(); text.remove_prefix(1)) {
    std::uint64_t run = 0;
    if (!take_number(text, run) || run > kSectorsMax || text.empty()) return std::nullopt;
    const std::size_t fate = kFateLetters.find(text.front());
    if (fate == std::string_view::npos) return std::nullopt;
    state.fates.insert(state.fates.end(), run, static_cast<SectorFate>(fate));
  }
  return state;
}

}  // namespace sarsen::crash
