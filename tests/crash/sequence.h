// What the explorer does to a store: short sequences of letters, and what every block may hold at
// each moment of them.
//
// A letter is one operation, or a few that belong together. A sequence begins on a base image and
// is written "aged:small,zero". Blocks are counted over the tracked part of two objects.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sarsen::crash {

enum class Letter : std::uint8_t {
  small,       // one block, the last of a leaf
  cross,       // three blocks over the edge of a leaf
  large,       // sixteen blocks over the edge, so that they go to fresh extents
  zero,        // five blocks, part of the others
  remove,      // the whole object
  other,       // one block of another object
  burst,       // five writes at once that overlap each other
  wrap,        // one after the other, more than the journal holds
  checkpoint,  // destage, flush of RocksDB, segments freed
  restart,     // clean stop, then open
  idle,        // nothing for two seconds: seal, idle destage
  format,      // over the store that is there
  resize,      // an image shrinks (zeros to the end, the other object goes) and grows again
  full,        // until the device refuses, and more
};
inline constexpr std::size_t kLetters = 14;

enum class Base : std::uint8_t {
  blank,  // zeros; only for sequences that begin with format
  fresh,  // formatted, never opened
  aged,   // data at home, extents, records in the journal, most of the journal used once
};

struct Sequence {
  Base base = Base::fresh;
  std::vector<Letter> letters;
};

std::string to_text(const Sequence& sequence);
// Nothing when the text is not one.
std::optional<Sequence> sequence_of(std::string_view text);
std::string_view name_of(Letter letter);

inline constexpr std::uint32_t kObjects = 2;
inline constexpr std::uint32_t kTrackedPerObject = 40;
inline constexpr std::uint32_t kTracked = kObjects * kTrackedPerObject;

// What a block holds: the id of a write, 0 for zeros.
using BlockValue = std::uint64_t;
using Contents = std::array<BlockValue, kTracked>;
inline constexpr BlockValue kCorrupt = ~BlockValue{0};      // the store says so
inline constexpr BlockValue kPhantom = ~BlockValue{0} - 1;  // bytes that nobody wrote there

std::string describe(BlockValue value);

// Changes in the order of their calls, with the points of the disk log between which each was in
// flight.
class History {
 public:
  explicit History(Contents initial) : initial_(initial) {}
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  // Returns its number, for acknowledged().
  std::size_t begun(std::uint32_t first, std::uint32_t count, BlockValue value,
                    std::uint64_t point);
  void acknowledged(std::size_t change, std::uint64_t point);
  // It was refused, and had no effect.
  void refused(std::size_t change) { changes_[change].count = 0; }
  // Nothing of the store needs to be readable between these.
  void format_begun(std::uint64_t point);
  void format_ended(std::uint64_t point) { formats_.back().ended = point; }

  // Whether a store has to open at that point.
  bool must_open(std::uint64_t point) const;
  // What is wrong with these contents at that point, or nothing: each block holds what its last
  // acknowledged change made of it, or what a later change that was begun would.
  std::optional<std::string> judge(const Contents& contents, std::uint64_t point) const;
  // Contents when everything was acknowledged.
  Contents final_contents() const;

 private:
  struct Change {
    std::uint32_t first;
    std::uint32_t count;
    BlockValue value;
    std::uint64_t begun;
    std::uint64_t acknowledged = kNever;
  };
  Contents initial_;
  std::vector<Change> changes_;
  struct Format {
    std::uint64_t begun;
    std::uint64_t ended = kNever;
  };
  std::vector<Format> formats_;
};

}  // namespace sarsen::crash
