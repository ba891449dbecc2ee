// BlockBitmap: one bit for each block of a chunk, worked on 64 at a time.
//
// Ranges are [from, from + count) within size(). Owns its words; no locking.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace sarsen {

class BlockBitmap {
 public:
  BlockBitmap() = default;
  explicit BlockBitmap(std::uint32_t bits);

  std::uint32_t size() const { return bits_; }
  bool test(std::uint32_t bit) const { return (words_[bit / 64] >> bit % 64 & 1) != 0; }
  void set(std::uint32_t from, std::uint32_t count);
  void clear(std::uint32_t from, std::uint32_t count);

  std::uint32_t count() const { return count(0, bits_); }
  std::uint32_t count(std::uint32_t from, std::uint32_t count) const;
  bool any(std::uint32_t from, std::uint32_t count) const;
  bool all(std::uint32_t from, std::uint32_t count) const;

  // The first bit in [from, to) that is set (clear); `to` when there is none.
  std::uint32_t next_set(std::uint32_t from, std::uint32_t to) const;
  std::uint32_t next_clear(std::uint32_t from, std::uint32_t to) const;
  // The lowest start of `want` clear bits, all in [from, to). want > 0.
  std::optional<std::uint32_t> find_clear_run(std::uint32_t from, std::uint32_t to,
                                              std::uint32_t want) const;

  // Bit 0 is the lowest bit of the first word; bits beyond size() are clear.
  std::span<const std::uint64_t> words() const { return words_; }
  bool operator==(const BlockBitmap&) const = default;

 private:
  std::uint32_t next(std::uint32_t from, std::uint32_t to, std::uint64_t flip) const;

  std::uint32_t bits_ = 0;
  std::vector<std::uint64_t> words_;
};

}  // namespace sarsen
