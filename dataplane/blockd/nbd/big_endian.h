// Bounded big-endian reading and appending, for NBD; all other formats are little-endian
// (base/codec.h). As there, the first read that does not fit sets a flag that stays set.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

namespace sarsen::nbd {

class BigEndianReader {
 public:
  explicit BigEndianReader(std::span<const std::byte> data) : data_(data) {}

  template <std::unsigned_integral Integer>
  Integer get() {
    std::uint64_t value = 0;
    for (const std::byte byte : bytes(sizeof(Integer))) {
      value = value << 8 | std::to_integer<std::uint64_t>(byte);
    }
    return static_cast<Integer>(value);
  }
  std::uint16_t u16() { return get<std::uint16_t>(); }
  std::uint32_t u32() { return get<std::uint32_t>(); }
  std::uint64_t u64() { return get<std::uint64_t>(); }
  // The next `count` bytes as text, in place; empty when they are not all there.
  std::string_view text(std::size_t count) {
    const auto piece = bytes(count);
    return {reinterpret_cast<const char*>(piece.data()), piece.size()};
  }
  std::string_view rest() { return text(remaining()); }

  bool ok() const { return ok_; }
  // Everything was read, and it all fitted.
  bool finished() const { return ok_ && data_.empty(); }
  std::size_t remaining() const { return ok_ ? data_.size() : 0; }

 private:
  std::span<const std::byte> bytes(std::size_t count) {
    if (!ok_ || count > data_.size()) {
      ok_ = false;
      return {};
    }
    const auto piece = data_.first(count);
    data_ = data_.subspan(count);
    return piece;
  }

  std::span<const std::byte> data_;
  bool ok_ = true;
};

// Appends to a vector that it borrows.
class BigEndianWriter {
 public:
  explicit BigEndianWriter(std::vector<std::byte>& out) : out_(out) {}

  template <typename T>
  void put(T value) {
    if constexpr (std::is_enum_v<T>) {
      put(static_cast<std::underlying_type_t<T>>(value));
    } else {
      static_assert(std::unsigned_integral<T>);
      for (std::size_t i = sizeof(T); i-- > 0;) {
        out_.push_back(static_cast<std::byte>(value >> (8 * i)));
      }
    }
  }
  void text(std::string_view text) {
    const auto bytes = std::as_bytes(std::span(text));
    out_.insert(out_.end(), bytes.begin(), bytes.end());
  }
  void zeros(std::size_t count) { out_.resize(out_.size() + count); }

 private:
  std::vector<std::byte>& out_;
};

}  // namespace sarsen::nbd
