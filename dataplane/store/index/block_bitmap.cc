#include "dataplane/store/index/block_bitmap.h"

#include <algorithm>
#include <bit>

#include "dataplane/base/assert.h"

namespace sarsen {
namespace {

constexpr std::uint64_t kAll = ~std::uint64_t{0};

// Calls visit(word index, mask of the range in it) for each word of [from, from + count) until it
// returns false; returns whether it never did.
template <typename Visit>
bool each_word(std::uint32_t from, std::uint32_t count, std::uint32_t bits, Visit visit) {
  SARSEN_ASSERT(from <= bits && count <= bits - from, "a range is within its bitmap");
  std::uint32_t at = from;
  const std::uint32_t end = from + count;
  while (at < end) {
    const std::uint32_t low = at % 64;
    const std::uint32_t length = std::min(64 - low, end - at);
    if (!visit(at / 64, kAll >> (64 - length) << low)) return false;
    at += length;
  }
  return true;
}

// Bit i of the result: bits i to i + length - 1 of `clear` are all set. 1 <= length <= 64.
std::uint64_t starts_of_runs(std::uint64_t clear, std::uint32_t length) {
  std::uint32_t known = 1;  // bit i says that `known` bits from i on are set
  while (known < length && clear != 0) {
    const std::uint32_t step = std::min(known, length - known);
    clear &= clear >> step;
    known += step;
  }
  return clear;
}

}  // namespace

BlockBitmap::BlockBitmap(std::uint32_t bits) : bits_(bits), words_((std::size_t{bits} + 63) / 64) {}

void BlockBitmap::set(std::uint32_t from, std::uint32_t count) {
  each_word(from, count, bits_, [&](std::uint32_t word, std::uint64_t mask) {
    words_[word] |= mask;
    return true;
  });
}

void BlockBitmap::clear(std::uint32_t from, std::uint32_t count) {
  each_word(from, count, bits_, [&](std::uint32_t word, std::uint64_t mask) {
    words_[word] &= ~mask;
    return true;
  });
}

std::uint32_t BlockBitmap::count(std::uint32_t from, std::uint32_t count) const {
  std::uint32_t total = 0;
  each_word(from, count, bits_, [&](std::uint32_t word, std::uint64_t mask) {
    total += static_cast<std::uint32_t>(std::popcount(words_[word] & mask));
    return true;
  });
  return total;
}

bool BlockBitmap::any(std::uint32_t from, std::uint32_t count) const {
  return !each_word(from, count, bits_, [&](std::uint32_t word, std::uint64_t mask) {
    return (words_[word] & mask) == 0;
  });
}

bool BlockBitmap::all(std::uint32_t from, std::uint32_t count) const {
  return each_word(from, count, bits_, [&](std::uint32_t word, std::uint64_t mask) {
    return (words_[word] & mask) == mask;
  });
}

std::uint32_t BlockBitmap::next(std::uint32_t from, std::uint32_t to, std::uint64_t flip) const {
  std::uint32_t found = to;
  if (from >= to) return to;
  each_word(from, to - from, bits_, [&](std::uint32_t word, std::uint64_t mask) {
    const std::uint64_t hits = (words_[word] ^ flip) & mask;
    if (hits == 0) return true;
    found = word * 64 + static_cast<std::uint32_t>(std::countr_zero(hits));
    return false;
  });
  return found;
}

std::uint32_t BlockBitmap::next_set(std::uint32_t from, std::uint32_t to) const {
  return next(from, to, 0);
}

std::uint32_t BlockBitmap::next_clear(std::uint32_t from, std::uint32_t to) const {
  return next(from, to, kAll);
}

std::optional<std::uint32_t> BlockBitmap::find_clear_run(std::uint32_t from, std::uint32_t to,
                                                         std::uint32_t want) const {
  SARSEN_ASSERT(want > 0, "a run has a length");
  if (to < from || to - from < want) return std::nullopt;
  std::optional<std::uint32_t> found;
  std::uint32_t run = 0;  // clear bits directly before the word
  each_word(from, to - from, bits_, [&](std::uint32_t word, std::uint64_t mask) {
    const std::uint64_t busy = words_[word] | ~mask;
    const auto head = static_cast<std::uint32_t>(std::countr_zero(busy));
    if (run + head >= want) {
      found = word * 64 - run;
      return false;
    }
    if (busy == 0) {
      run += 64;
      return true;
    }
    if (want <= 64) {
      if (const std::uint64_t starts = starts_of_runs(~busy, want); starts != 0) {
        found = word * 64 + static_cast<std::uint32_t>(std::countr_zero(starts));
        return false;
      }
    }
    run = static_cast<std::uint32_t>(std::countl_zero(busy));
    return true;
  });
  return found;
}

}  // namespace sarsen
