#include "tests/crash/explorer.h"

#include <algorithm>
#include <utility>

namespace sarsen::crash {
namespace {

constexpr BlockValue kBaseValues = 1;       // writes of a base image
constexpr BlockValue kLetterValues = 1000;  // the first of a sequence
constexpr BlockValue kValuesPerLetter = 100;
constexpr BlockValue kProbeValue = 900;  // the write after recovery
constexpr std::uint32_t kProbeBlock = 15;
constexpr std::size_t kImagesRemembered = 50'000;

// A machine of its own: it formats with other random numbers than the one that made the base.
constexpr std::uint64_t kRecordingSeed = 0x5eed;

// Every n-th, so that at most `wanted` remain; the last one always.
std::vector<std::uint64_t> thinned(std::uint64_t first, std::uint64_t last, std::uint64_t wanted) {
  std::vector<std::uint64_t> points;
  const std::uint64_t count = last - first + 1;
  const std::uint64_t step = std::max<std::uint64_t>(1, (count + wanted - 1) / wanted);
  for (std::uint64_t point = first; point <= last; point += step) points.push_back(point);
  if (points.back() != last) points.push_back(last);
  return points;
}

// A stream of its own for each sequence: it does not matter what was explored before.
Rng rng_for(std::uint64_t seed, const std::string& text) {
  return Rng(seed ^ sim::hash_of(text));
}

}  // namespace

Explorer::Explorer(ExplorerOptions options, Announce announce, Report report)
    : options_(std::move(options)), announce_(std::move(announce)), report_(std::move(report)) {}

void Explorer::violation(const std::string& replay, const std::string& what) {
  ++counts_.violations;
  report_(replay, what);
}

// ------------------------------------------------------------------------------------ recording

const Explorer::BaseImage& Explorer::base_of(Base base) {
  const auto found = bases_.find(base);
  if (found != bases_.end()) return found->second;
  return bases_.emplace(base, make_base(base)).first->second;
}

Explorer::BaseImage Explorer::make_base(Base base) const {
  if (base == Base::blank) return {sim::SparseImage(kDeviceBytes), {}};
  // Without the planted bug: what it breaks is looked for in the sequences.
  World world(options_.seed, "", sim::SparseImage(kDeviceBytes));
  History history{Contents{}};
  SARSEN_ASSERT(world.format().has_value(), "formatting succeeds");
  if (base == Base::aged) {
    BlockValue value = kBaseValues;
    SARSEN_ASSERT(world.open().has_value(), "a new store opens");
    for (const Letter letter : {Letter::large, Letter::wrap, Letter::checkpoint, Letter::small,
                                Letter::other, Letter::cross}) {
      SARSEN_ASSERT(world.perform(letter, value, nullptr, history).has_value(), "it writes");
      value += kValuesPerLetter;
    }
  }
  world.cut(sim::CrashKind::power_loss);
  return {world.disk().stable(), history.final_contents()};
}

Explorer::Recording Explorer::record(const Sequence& sequence) {
  const BaseImage& base = base_of(sequence.base);
  Recording recording{sim::DiskLog(base.image, /*volatile_cache=*/true), History(base.contents)};
  World world(options_.seed ^ kRecordingSeed, options_.planted, base.image);
  world.disk().set_log(&recording.log);
  if (sequence.base == Base::blank) recording.history.format_begun(0);
  if (sequence.base != Base::blank) recording.outcome = world.open();
  BlockValue value = kLetterValues;
  for (const Letter letter : sequence.letters) {
    if (!recording.outcome) break;
    recording.log.mark(std::string(name_of(letter)));
    recording.last_letter_begins = recording.log.points();
    recording.outcome = world.perform(letter, value, &recording.log, recording.history);
    value += kValuesPerLetter;
  }
  recording.io_count = world.disk().io_count();
  world.disk().set_log(nullptr);
  return recording;
}

// -------------------------------------------------------------------------------------- judging

Explorer::Opened Explorer::open_and_look(const sim::SparseImage& image, sim::DiskLog* log) const {
  World world(options_.seed, options_.planted, image);
  world.disk().set_log(log);
  Opened result;
  if (const auto opened = world.open(); !opened) {
    result.violation = "does not open: " + opened.error().message();
    world.disk().set_log(nullptr);
    return result;
  }
  result.contents = world.contents();
  if (const auto balanced = world.audit(); !balanced) {
    result.violation = "does not balance: " + balanced.error().message();
  }
  world.disk().set_log(nullptr);
  return result;
}

const Explorer::Opened& Explorer::opened(const sim::SparseImage& image) {
  const std::uint64_t fingerprint = image.fingerprint();
  const auto found = by_fingerprint_.find(fingerprint);
  if (found != by_fingerprint_.end()) return found->second;
  if (by_fingerprint_.size() >= kImagesRemembered) by_fingerprint_.clear();
  ++counts_.images;
  return by_fingerprint_.emplace(fingerprint, open_and_look(image, nullptr)).first->second;
}

// The recovered store goes on: a write, a checkpoint, a restart. What is wrong, or nothing.
std::string Explorer::use(const sim::SparseImage& image) const {
  World world(options_.seed + 1, options_.planted, image);
  if (const auto opened = world.open(); !opened) return "opens once, and then not";
  Contents expected = world.contents();
  const auto step = [&](const char* doing, const Result<void>& done) -> std::string {
    return done ? "" : std::string(doing) + " after recovery: " + done.error().message();
  };
  const auto written = world.write(kProbeBlock, 1, kProbeValue);
  const bool full = !written && is(written.error(), StoreError::no_space);
  std::string wrong = full ? "" : step("write", written);
  if (!full) expected[kProbeBlock] = kProbeValue;
  if (wrong.empty()) wrong = step("checkpoint", world.checkpoint());
  if (wrong.empty()) wrong = step("audit", world.audit());
  if (wrong.empty()) {
    world.cut(sim::CrashKind::power_loss);
    world.power_on();
    wrong = step("open", world.open());
  }
  if (wrong.empty()) wrong = step("audit of a second recovery", world.audit());
  if (wrong.empty()) wrong = step("scrub", world.scrub());
  if (wrong.empty() && world.contents() != expected) {
    wrong = "contents changed after recovery, a write, a checkpoint and a restart";
  }
  return wrong;
}

void Explorer::explore(const Sequence& sequence) {
  const std::string name = to_text(sequence);
  announce_(name);
  Recording recording = record(sequence);
  if (!recording.outcome) {
    violation(name, "an operation fails without a fault: " + recording.outcome.error().message());
    return;
  }
  Rng rng = rng_for(options_.seed, name);
  for (const std::uint64_t point :
       thinned(recording.last_letter_begins, recording.log.points(), options_.points_max)) {
    ++counts_.points;
    for (const auto& state : crash_states(recording.log, point, options_.states, rng)) {
      const bool deep = rng.below(100) < options_.deep_percent;
      const bool again = rng.below(100) < options_.again_percent;
      explore_state(recording, name + "/" + to_text(state), state, deep, again);
    }
    if (counts_.violations >= kViolationsMax) return;
  }
}

void Explorer::explore_state(Recording& recording, const std::string& replay,
                             const sim::CrashState& state, bool deep, bool again) {
  announce_(replay);
  ++counts_.states;
  const sim::SparseImage image = recording.log.build_image(state);
  const std::uint64_t images_before = counts_.images;
  const Opened seen = opened(image);
  const bool is_new = counts_.images != images_before;
  const bool must_open = recording.history.must_open(state.point);
  if (!seen.violation.empty()) {
    if (must_open) violation(replay, seen.violation);
    return;
  }
  if (const auto wrong = recording.history.judge(seen.contents, state.point)) {
    return violation(replay, *wrong);
  }
  if (!is_new || !must_open) return;
  if (deep) {
    ++counts_.deep;
    if (const std::string wrong = use(image); !wrong.empty()) return violation(replay, wrong);
  }
  if (again) crash_again(image, replay, seen.contents);
}

// ------------------------------------------------------------------- a crash during the recovery

void Explorer::crash_again(const sim::SparseImage& image, const std::string& replay,
                           const Contents& contents) {
  constexpr int kPoints = 4;
  sim::DiskLog log(image, /*volatile_cache=*/true);
  (void)open_and_look(image, &log);
  Rng rng = rng_for(options_.seed, replay);
  for (int i = 0; i < kPoints; ++i) {
    const std::uint64_t point = rng.below(log.points() + 1);
    const auto states = crash_states(log, point, options_.states, rng);
    check_second(log, replay, states[rng.below(states.size())], contents);
  }
}

void Explorer::check_second(sim::DiskLog& log, const std::string& replay,
                            const sim::CrashState& state, const Contents& contents) {
  const std::string second = replay + "/" + to_text(state);
  announce_(second);
  ++counts_.states;
  ++counts_.second_crashes;
  const Opened& seen = opened(log.build_image(state));
  if (!seen.violation.empty()) return violation(second, "second crash: " + seen.violation);
  for (std::uint32_t block = 0; block < kTracked; ++block) {
    if (seen.contents[block] == contents[block]) continue;
    return violation(second, "a second crash changes tracked block " + std::to_string(block) +
                                 " from " + describe(contents[block]) + " to " +
                                 describe(seen.contents[block]));
  }
}

// --------------------------------------------------------------------------------- failing I/O

void Explorer::fail_each_io(const Sequence& sequence, std::uint64_t stride) {
  const std::uint64_t io_count = record(sequence).io_count;
  for (const Failure failure :
       {Failure::all_later, Failure::write, Failure::flush, Failure::memory}) {
    // Flushes and allocations are fewer, and each is another case.
    const std::uint64_t step = failure == Failure::flush ? 1 : stride;
    for (std::uint64_t nth = 1; nth <= io_count; nth += step) {
      if (!fail_io(sequence, nth, failure)) break;
      if (counts_.violations >= kViolationsMax) return;
    }
  }
}

// Every error is a value, and after the next start the contract holds.
bool Explorer::fail_io(const Sequence& sequence, std::uint64_t nth, Failure failure) {
  const std::string kind =
      failure == Failure::all_later ? "" : std::string(1, static_cast<char>(failure));
  const std::string replay = to_text(sequence) + "!" + kind + std::to_string(nth);
  announce_(replay);
  const BaseImage& base = base_of(sequence.base);
  History history(base.contents);
  sim::DiskLog marks(base.image, /*volatile_cache=*/true);
  World world(options_.seed ^ kRecordingSeed, options_.planted, base.image);
  switch (failure) {
    case Failure::all_later: world.disk().fail_after(nth); break;
    case Failure::write: world.disk().fail_one_write(nth - 1); break;
    case Failure::flush: world.disk().fail_one_flush(nth - 1); break;
    case Failure::memory: world.fail_one_allocation(nth - 1); break;
  }
  Result<void> alive;
  if (sequence.base == Base::blank) history.format_begun(0);
  if (sequence.base != Base::blank) alive = world.open();
  BlockValue value = kLetterValues;
  for (const Letter letter : sequence.letters) {
    if (!alive && !world.is_open()) break;
    alive = world.perform(letter, value, &marks, history);
    value += kValuesPerLetter;
  }
  if (world.failure_is_to_come()) return false;
  ++counts_.failed_io;
  ++counts_.states;
  world.cut(nth % 2 == 0 ? sim::CrashKind::power_loss : sim::CrashKind::process_kill);
  const sim::SparseImage image = nth % 2 == 0 ? world.disk().stable() : world.disk().current();
  const Opened& seen = opened(image);
  const bool must_open = history.must_open(marks.points());
  std::string wrong = must_open ? seen.violation : "";
  if (seen.violation.empty()) wrong = history.judge(seen.contents, marks.points()).value_or("");
  if (wrong.empty() && must_open) wrong = use(image);
  if (!wrong.empty()) violation(replay, wrong);
  return true;
}

// --------------------------------------------------------------------------------------- replay

bool Explorer::replay(std::string_view text) {
  const std::size_t end = text.find_first_of("/!");
  const auto sequence = sequence_of(text.substr(0, end));
  if (!sequence) return false;
  if (end == std::string_view::npos) {
    explore(*sequence);
    return true;
  }
  const std::string_view rest = text.substr(end + 1);
  if (text[end] == '!') {
    const bool named = !rest.empty() && std::string_view("wfm").find(rest[0]) != rest.npos;
    const auto failure = named ? static_cast<Failure>(rest[0]) : Failure::all_later;
    return fail_io(*sequence, std::stoull(std::string(rest.substr(named ? 1 : 0))), failure);
  }
  const auto first = state_of(rest.substr(0, rest.find('/')));
  if (!first) return false;
  Recording recording = record(*sequence);
  if (first->point > recording.log.points() ||
      first->fates.size() > recording.log.pending_sectors(first->point).size()) {
    return false;  // of another seed or build
  }
  const std::string replay(text.substr(0, end + 1 + std::min(rest.find('/'), rest.size())));
  explore_state(recording, replay, *first, /*deep=*/true, /*again=*/false);
  if (rest.find('/') == std::string_view::npos) return true;
  const auto second = state_of(rest.substr(rest.find('/') + 1));
  if (!second) return false;
  const sim::SparseImage image = recording.log.build_image(*first);
  sim::DiskLog log(image, /*volatile_cache=*/true);
  const Opened seen = open_and_look(image, &log);
  check_second(log, replay, *second, seen.contents);
  return true;
}

}  // namespace sarsen::crash
