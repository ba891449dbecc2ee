// Integers in as few bytes as they need: 7 bits a byte, low bits first, the top bit says "more".
//
// One number has one encoding: a reader refuses a longer one, so that values stay canonical.
#pragma once

#include <cstdint>

#include "dataplane/base/codec.h"

namespace sarsen {

inline constexpr std::size_t kVarintBytesMax = 10;

inline void write_varint(ByteWriter& writer, std::uint64_t value) {
  while (value >= 0x80) {
    writer.u8(static_cast<std::uint8_t>(value | 0x80));
    value >>= 7;
  }
  writer.u8(static_cast<std::uint8_t>(value));
}

// 0 and a failed reader when the number is cut off, longer than needed, or beyond 64 bits.
inline std::uint64_t read_varint(ByteReader& reader) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    const std::uint8_t byte = reader.u8();
    const bool beyond_64_bits = shift == 63 && byte > 1;
    const bool longer_than_needed = byte == 0 && shift > 0;
    if (beyond_64_bits || longer_than_needed) break;
    value |= std::uint64_t{byte & 0x7fu} << shift;
    if ((byte & 0x80) == 0) return reader.ok() ? value : 0;
  }
  reader.mark_failed();
  return 0;
}

constexpr std::size_t varint_bytes(std::uint64_t value) {
  std::size_t count = 1;
  while (value >= 0x80) {
    value >>= 7;
    ++count;
  }
  return count;
}

// The difference b - a modulo 2^64 as a number that is small when a and b are near each other.
constexpr std::uint64_t zigzag_difference(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t difference = b - a;
  return difference << 1 ^ (difference >> 63 != 0 ? ~std::uint64_t{0} : 0);
}
constexpr std::uint64_t apply_zigzag(std::uint64_t a, std::uint64_t zigzag) {
  return a + (zigzag >> 1 ^ ((zigzag & 1) != 0 ? ~std::uint64_t{0} : 0));
}

}  // namespace sarsen
