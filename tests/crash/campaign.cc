#include "tests/crash/campaign.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <vector>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dataplane/base/assert.h"

namespace sarsen::crash {
namespace {

constexpr unsigned kProcessesMax = 16;
constexpr unsigned kStateSecondsMax = 120;
constexpr std::uint64_t kDeathsMax = 10;

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seen by all processes.
struct Shared {
  struct Slot {
    ExplorerCounts counts;        // of processes that ended here, and of the one that runs
    char replay[32 * 1024] = {};  // what it is doing
  };
  std::atomic<std::uint64_t> next_item = 0;
  std::atomic<std::uint64_t> violations = 0;
  Slot slots[kProcessesMax];
};

void add(ExplorerCounts& sum, const ExplorerCounts& counts) {
  sum.points += counts.points;
  sum.states += counts.states;
  sum.images += counts.images;
  sum.deep += counts.deep;
  sum.second_crashes += counts.second_crashes;
  sum.failed_io += counts.failed_io;
  sum.violations += counts.violations;
}

struct Item {
  Sequence sequence;
  bool fails = false;  // the n-th I/O fails, instead of power
};

std::vector<Item> items_for(const CampaignOptions& options) {
  std::vector<Item> items;
  const auto with = [](Base base, std::vector<Letter> letters) {
    return Sequence{base, std::move(letters)};
  };
  items.push_back({with(Base::fresh, {})});
  items.push_back({with(Base::aged, {})});
  items.push_back({with(Base::blank, {Letter::format})});
  const auto letter = [](std::size_t i) { return static_cast<Letter>(i); };
  for (std::size_t i = 0; i < kLetters && options.length >= 1; ++i) {
    items.push_back({with(Base::fresh, {letter(i)})});
    items.push_back({with(Base::aged, {letter(i)})});
  }
  using enum Letter;
  for (const auto& sequence : {with(Base::aged, {burst, checkpoint, remove}),
                               with(Base::aged, {large, idle, restart, zero, checkpoint}),
                               with(Base::aged, {resize, wrap, format})}) {
    items.push_back({sequence, true});
  }
  for (std::size_t i = 0; i < kLetters * kLetters && options.length >= 2; ++i) {
    items.push_back({with(Base::aged, {letter(i / kLetters), letter(i % kLetters)})});
  }
  return items;
}

class Campaign {
 public:
  explicit Campaign(const CampaignOptions& options)
      : options_(options), items_(items_for(options)), began_(now_seconds()) {
    void* memory =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    SARSEN_ASSERT(memory != MAP_FAILED, "the machine has memory for the explorer");
    shared_ = new (memory) Shared;
  }
  Campaign(const Campaign&) = delete;
  ~Campaign() { ::munmap(shared_, sizeof(Shared)); }

  ExplorerCounts run();

 private:
  [[noreturn]] void work(unsigned slot);
  pid_t start(unsigned slot);
  void retire(unsigned slot, int status);
  bool time_is_up() const { return now_seconds() - began_ > options_.minutes * 60; }
  bool enough() const {
    return shared_->violations >= (options_.stop_at_first ? 1 : kViolationsMax);
  }
  Item sampled(std::uint64_t number) const;
  ExplorerCounts sum() const;
  void progress();

  const CampaignOptions& options_;
  const std::vector<Item> items_;
  double began_;
  double reported_ = 0;
  Shared* shared_;
  std::uint64_t deaths_ = 0;
};

// A longer sequence; the same number gives the same one.
Item Campaign::sampled(std::uint64_t number) const {
  Rng rng(options_.explorer.seed * 0x9e3779b97f4a7c15u + number);
  Item item;
  item.sequence.base = rng.chance(0.75) ? Base::aged : Base::fresh;
  for (std::uint32_t i = 0; i < options_.length; ++i) {
    item.sequence.letters.push_back(static_cast<Letter>(rng.below(kLetters)));
  }
  item.fails = rng.chance(0.1);
  return item;
}

void Campaign::work(unsigned index) {
  Shared::Slot& slot = shared_->slots[index];
  const ExplorerCounts before = slot.counts;
  const auto announce = [&slot](const std::string& replay) {
    const std::size_t length = std::min(replay.size(), sizeof(slot.replay) - 1);
    std::memcpy(slot.replay, replay.data(), length);
    slot.replay[length] = 0;
    ::alarm(kStateSecondsMax);
  };
  const auto report = [this](const std::string& replay, const std::string& what) {
    std::printf("%s: %s\n", command_of(options_.explorer, replay).c_str(), what.c_str());
    std::fflush(stdout);
    ++shared_->violations;
  };
  Explorer explorer(options_.explorer, announce, report);
  while (!enough()) {
    const std::uint64_t number = shared_->next_item++;
    const bool listed = number < items_.size();
    if (!listed && (options_.length < 3 || time_is_up())) break;
    const Item item = listed ? items_[number] : sampled(number);
    if (item.fails) {
      explorer.fail_each_io(item.sequence, options_.fail_stride);
    } else {
      explorer.explore(item.sequence);
    }
    slot.counts = before;
    add(slot.counts, explorer.counts());
  }
  std::fflush(nullptr);
  ::_exit(0);
}

pid_t Campaign::start(unsigned slot) {
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  SARSEN_ASSERT(pid >= 0, "the machine has a process for the explorer");
  if (pid == 0) work(slot);
  return pid;
}

// An assertion, a crash, or a state that takes too long.
void Campaign::retire(unsigned slot, int status) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  ++deaths_;
  ++shared_->violations;
  ++shared_->slots[slot].counts.violations;
  std::printf("%s: the process ended with %s %d (above: why)\n",
              command_of(options_.explorer, shared_->slots[slot].replay).c_str(),
              WIFSIGNALED(status) ? "signal" : "status",
              WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
  std::fflush(stdout);
}

ExplorerCounts Campaign::sum() const {
  ExplorerCounts counts;
  for (const Shared::Slot& slot : shared_->slots) add(counts, slot.counts);
  return counts;
}

void Campaign::progress() {
  const double now = now_seconds();
  if (now - reported_ < 5) return;
  reported_ = now;
  const ExplorerCounts counts = sum();
  const std::uint64_t begun = shared_->next_item;
  std::fprintf(stderr,
               "crash: %lu of %zu sequences, %lu longer ones, %lu states, %lu images, %.0f s\n",
               std::min<std::uint64_t>(begun, items_.size()), items_.size(),
               begun > items_.size() ? begun - items_.size() : 0, counts.states, counts.images,
               now - began_);
}

ExplorerCounts Campaign::run() {
  constexpr unsigned kLookEachMicroseconds = 300'000;
  std::vector<pid_t> workers(std::min(options_.processes, kProcessesMax), -1);
  for (unsigned slot = 0; slot < workers.size(); ++slot) workers[slot] = start(slot);
  while (std::any_of(workers.begin(), workers.end(), [](pid_t pid) { return pid > 0; })) {
    for (unsigned slot = 0; slot < workers.size(); ++slot) {
      int status = 0;
      if (workers[slot] <= 0 || ::waitpid(workers[slot], &status, WNOHANG) == 0) continue;
      retire(slot, status);
      const bool died = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
      workers[slot] = died && !enough() && deaths_ < kDeathsMax ? start(slot) : -1;
    }
    ::usleep(kLookEachMicroseconds);
    progress();
  }
  const ExplorerCounts counts = sum();
  const double took = now_seconds() - began_;
  const std::uint64_t begun = shared_->next_item;
  std::printf(
      "%zu sequences of up to %u letters, %lu longer ones\n"
      "%lu points, %lu states judged, %lu different images opened, of these %lu used on, "
      "%lu second crashes, %lu failed I/Os\n%.0f s: %.0f states/s, %.0f images/s\n",
      std::min<std::size_t>(begun, items_.size()), std::min(options_.length, 2u),
      begun > items_.size() + workers.size() ? begun - items_.size() - workers.size() : 0,
      counts.points, counts.states, counts.images, counts.deep, counts.second_crashes,
      counts.failed_io, took, static_cast<double>(counts.states) / took,
      static_cast<double>(counts.images) / took);
  return counts;
}

}  // namespace

std::string command_of(const ExplorerOptions& options, const std::string& replay) {
  std::string text = "hack/crash --seed " + std::to_string(options.seed);
  if (!options.planted.empty()) text += " --planted " + options.planted;
  return text + " --replay " + replay;
}

ExplorerCounts run_campaign(const CampaignOptions& options) {
  return Campaign(options).run();
}

}  // namespace sarsen::crash
