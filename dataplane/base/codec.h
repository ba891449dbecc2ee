// Bounded little-endian reading and writing of bytes that come from, or go to, a disk or a peer.
//
// Neither class ever touches memory outside its span. The first access that does not fit sets a
// flag that stays set; from then on a reader gives zeros and empty spans and a writer writes
// nothing. So a parser reads all of its fields and asks ok() once, before it believes any of them.
//
//   ByteReader reader(bytes);
//   const std::uint32_t magic = reader.u32();
//   const auto sequence = reader.get<LaneSequence>();
//   if (!reader.ok()) return fail(...);
//
// Both borrow their span. No allocation, no alignment requirement, no exceptions.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>

#include "dataplane/base/units.h"

namespace sarsen {

// The `Integer` whose little-endian bytes start at `from`; sizeof(Integer) bytes are read.
template <std::integral Integer>
Integer load_little_endian(const std::byte* from) {
  using Unsigned = std::make_unsigned_t<Integer>;
  Unsigned value = 0;
  if constexpr (std::endian::native == std::endian::little) {
    std::memcpy(&value, from, sizeof(value));
  } else {
    for (std::size_t i = 0; i < sizeof(value); ++i) {
      value = static_cast<Unsigned>(
          value | static_cast<Unsigned>(std::to_integer<Unsigned>(from[i]) << (8 * i)));
    }
  }
  return static_cast<Integer>(value);
}

template <std::integral Integer>
void store_little_endian(std::byte* to, Integer integer) {
  using Unsigned = std::make_unsigned_t<Integer>;
  const auto value = static_cast<Unsigned>(integer);
  if constexpr (std::endian::native == std::endian::little) {
    std::memcpy(to, &value, sizeof(value));
  } else {
    for (std::size_t i = 0; i < sizeof(value); ++i) {
      to[i] = static_cast<std::byte>(value >> (8 * i));
    }
  }
}

class ByteReader {
 public:
  ByteReader() = default;
  explicit ByteReader(std::span<const std::byte> data) : data_(data) {}

  std::uint8_t u8() { return integer<std::uint8_t>(); }
  std::uint16_t u16() { return integer<std::uint16_t>(); }
  std::uint32_t u32() { return integer<std::uint32_t>(); }
  std::uint64_t u64() { return integer<std::uint64_t>(); }
  std::int64_t i64() { return integer<std::int64_t>(); }

  // A strong type (reader.get<MapEpoch>()), an enum in its underlying type, or an integer. An enum
  // is not checked: whether the number names a value is for the caller to decide.
  template <typename T>
  T get() {
    if constexpr (std::is_enum_v<T>) {
      return static_cast<T>(integer<std::underlying_type_t<T>>());
    } else if constexpr (std::is_integral_v<T>) {
      return integer<T>();
    } else {
      return T(integer<decltype(T::value)>());
    }
  }

  // The next `count` bytes, in place; empty when they are not all there.
  std::span<const std::byte> bytes(std::size_t count) {
    if (!fits(count)) return {};
    const auto piece = data_.subspan(offset_, count);
    offset_ += count;
    return piece;
  }
  // The next `count` bytes as text, in place, not checked for any encoding.
  std::string_view text(std::size_t count) {
    const auto piece = bytes(count);
    return {reinterpret_cast<const char*>(piece.data()), piece.size()};
  }
  // Fills `into`; with zeros when the bytes are not all there.
  void copy_to(std::span<std::byte> into) {
    const auto piece = bytes(into.size());
    if (piece.size() == into.size()) {
      if (!piece.empty()) std::memcpy(into.data(), piece.data(), piece.size());
    } else {
      std::memset(into.data(), 0, into.size());
    }
  }
  void skip(std::size_t count) { bytes(count); }
  // Skips `count` bytes that the format reserves; fails unless all of them are zero.
  void zeros(std::size_t count) {
    for (const std::byte byte : bytes(count)) {
      if (byte != std::byte{0}) return mark_failed();
    }
  }
  // A length of `Length` type (at most `count_max`), then that many bytes, in place.
  template <std::unsigned_integral Length>
  std::span<const std::byte> prefixed_bytes(std::size_t count_max) {
    const Length count = integer<Length>();
    if (count > count_max) {
      mark_failed();
      return {};
    }
    return bytes(count);
  }
  template <std::unsigned_integral Length>
  std::string_view prefixed_text(std::size_t count_max) {
    const auto piece = prefixed_bytes<Length>(count_max);
    return {reinterpret_cast<const char*>(piece.data()), piece.size()};
  }

  // False once anything did not fit or mark_failed() was called.
  bool ok() const { return ok_; }
  // True when everything was read and it all fitted.
  bool finished() const { return ok_ && remaining() == 0; }
  // The caller met a value that cannot be; later reads give zeros.
  void mark_failed() { ok_ = false; }
  std::size_t offset() const { return offset_; }
  // 0 after a failure, so that loops over what remains end.
  std::size_t remaining() const { return ok_ ? data_.size() - offset_ : 0; }

 private:
  bool fits(std::size_t count) {
    if (count > remaining()) ok_ = false;
    return ok_;
  }
  template <std::integral Integer>
  Integer integer() {
    if (!fits(sizeof(Integer))) return 0;
    const auto value = load_little_endian<Integer>(data_.data() + offset_);
    offset_ += sizeof(Integer);
    return value;
  }

  std::span<const std::byte> data_;
  std::size_t offset_ = 0;
  bool ok_ = true;
};

class ByteWriter {
 public:
  ByteWriter() = default;
  explicit ByteWriter(std::span<std::byte> into) : into_(into) {}

  void u8(std::uint8_t value) { integer(value); }
  void u16(std::uint16_t value) { integer(value); }
  void u32(std::uint32_t value) { integer(value); }
  void u64(std::uint64_t value) { integer(value); }
  void i64(std::int64_t value) { integer(value); }

  // A strong type, an enum in its underlying type, or an integer in its own width.
  template <typename T>
  void put(T value) {
    if constexpr (std::is_enum_v<T>) {
      integer(static_cast<std::underlying_type_t<T>>(value));
    } else if constexpr (std::is_integral_v<T>) {
      integer(value);
    } else {
      integer(value.value);
    }
  }

  void bytes(std::span<const std::byte> from) {
    const auto room = reserve(from.size());
    if (room.size() == from.size() && !from.empty()) {
      std::memcpy(room.data(), from.data(), from.size());
    }
  }
  void text(std::string_view from) { bytes(std::as_bytes(std::span(from))); }
  void zeros(std::size_t count) {
    const auto room = reserve(count);
    if (!room.empty()) std::memset(room.data(), 0, room.size());
  }
  // Zeros up to the next offset that is a multiple of `alignment` (a power of two).
  void pad_to(std::size_t alignment) { zeros(round_up(offset_, alignment) - offset_); }
  // The length in `Length` type, then the bytes. Too long for `Length` is an overflow.
  template <std::unsigned_integral Length>
  void prefixed_bytes(std::span<const std::byte> from) {
    if (from.size() > std::numeric_limits<Length>::max()) return mark_failed();
    integer(static_cast<Length>(from.size()));
    bytes(from);
  }
  template <std::unsigned_integral Length>
  void prefixed_text(std::string_view from) {
    prefixed_bytes<Length>(std::as_bytes(std::span(from)));
  }
  // The next `count` bytes, for the caller to fill; empty when there is no room.
  std::span<std::byte> reserve(std::size_t count) {
    if (!fits(count)) return {};
    const auto room = into_.subspan(offset_, count);
    offset_ += count;
    return room;
  }
  // Overwrites bytes that were written before, at `offset` (a length or checksum known only later).
  template <std::integral Integer>
  void integer_at(std::size_t offset, Integer value) {
    if (!ok_ || offset > offset_ || offset_ - offset < sizeof(Integer)) return mark_failed();
    store_little_endian(into_.data() + offset, value);
  }
  void u32_at(std::size_t offset, std::uint32_t value) { integer_at(offset, value); }
  void u64_at(std::size_t offset, std::uint64_t value) { integer_at(offset, value); }

  // False once anything did not fit; what was written before that stands.
  bool ok() const { return ok_; }
  void mark_failed() { ok_ = false; }
  std::size_t offset() const { return offset_; }
  std::size_t remaining() const { return ok_ ? into_.size() - offset_ : 0; }
  std::span<const std::byte> written() const { return into_.first(offset_); }

 private:
  bool fits(std::size_t count) {
    if (count > remaining()) ok_ = false;
    return ok_;
  }
  template <std::integral Integer>
  void integer(Integer value) {
    if (!fits(sizeof(Integer))) return;
    store_little_endian(into_.data() + offset_, value);
    offset_ += sizeof(Integer);
  }

  std::span<std::byte> into_;
  std::size_t offset_ = 0;
  bool ok_ = true;
};

}  // namespace sarsen
