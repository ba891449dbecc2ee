#include "tests/crash/sequence.h"

#include <algorithm>

#include "dataplane/base/assert.h"

namespace sarsen::crash {
namespace {

constexpr std::array<std::string_view, kLetters> kLetterNames = {
    "small", "cross",      "large",   "zero", "remove", "other",  "burst",
    "wrap",  "checkpoint", "restart", "idle", "format", "resize", "full"};
constexpr std::array<std::string_view, 3> kBaseNames = {"blank", "fresh", "aged"};

template <typename Names>
std::optional<std::uint8_t> index_in(const Names& names, std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<std::uint8_t>(found - names.begin());
}

}  // namespace

std::string_view name_of(Letter letter) {
  return kLetterNames[static_cast<std::size_t>(letter)];
}

std::string to_text(const Sequence& sequence) {
  std::string text(kBaseNames[static_cast<std::size_t>(sequence.base)]);
  char separator = ':';
  for (const Letter letter : sequence.letters) {
    text += separator;
    text += name_of(letter);
    separator = ',';
  }
  return text;
}

std::optional<Sequence> sequence_of(std::string_view text) {
  const std::size_t colon = text.find(':');
  const auto base = index_in(kBaseNames, text.substr(0, colon));
  if (!base) return std::nullopt;
  Sequence sequence{static_cast<Base>(*base), {}};
  if (colon == std::string_view::npos) return sequence;
  for (text.remove_prefix(colon + 1); !text.empty();) {
    const std::size_t end = std::min(text.find(','), text.size());
    const auto letter = index_in(kLetterNames, text.substr(0, end));
    if (!letter) return std::nullopt;
    sequence.letters.push_back(static_cast<Letter>(*letter));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return sequence;
}

std::string describe(BlockValue value) {
  if (value == kCorrupt) return "corrupt";
  if (value == kPhantom) return "bytes that nobody wrote there";
  return value == 0 ? "zeros" : "write " + std::to_string(value);
}

std::size_t History::begun(std::uint32_t first, std::uint32_t count, BlockValue value,
                           std::uint64_t point) {
  SARSEN_ASSERT(first + count <= kTracked, "sequences stay within the tracked blocks");
  changes_.push_back({first, count, value, point});
  return changes_.size() - 1;
}

void History::acknowledged(std::size_t change, std::uint64_t point) {
  changes_[change].acknowledged = point;
}

void History::format_begun(std::uint64_t point) {
  // A blank device is one that was never formatted to the end.
  if (formats_.empty() || formats_.back().ended != kNever) formats_.push_back({point});
}

bool History::must_open(std::uint64_t point) const {
  return std::none_of(formats_.begin(), formats_.end(), [point](const Format& format) {
    return format.begun <= point && point < format.ended;
  });
}

std::optional<std::string> History::judge(const Contents& contents, std::uint64_t point) const {
  std::array<std::vector<BlockValue>, kTracked> allowed;
  for (std::uint32_t block = 0; block < kTracked; ++block) allowed[block] = {initial_[block]};
  for (const Change& change : changes_) {
    if (change.begun > point) continue;
    for (std::uint32_t block = change.first; block < change.first + change.count; ++block) {
      if (change.acknowledged <= point) allowed[block].clear();
      allowed[block].push_back(change.value);
    }
  }
  for (std::uint32_t block = 0; block < kTracked; ++block) {
    const std::vector<BlockValue>& of_block = allowed[block];
    if (std::find(of_block.begin(), of_block.end(), contents[block]) != of_block.end()) continue;
    std::string text = "object " + std::to_string(block / kTrackedPerObject + 1) + " block " +
                       std::to_string(block % kTrackedPerObject) + " holds " +
                       describe(contents[block]) + ", not";
    for (const BlockValue value : of_block) text += " " + describe(value) + ";";
    text.pop_back();
    return text;
  }
  return std::nullopt;
}

Contents History::final_contents() const {
  Contents contents = initial_;
  for (const Change& change : changes_) {
    if (change.acknowledged == kNever) continue;
    std::fill_n(contents.begin() + change.first, change.count, change.value);
  }
  return contents;
}

}  // namespace sarsen::crash
