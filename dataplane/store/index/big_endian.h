// Integers whose byte order is their numerical order: for keys.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace sarsen {

template <std::unsigned_integral Integer>
void store_big_endian(std::byte* to, Integer value) {
  for (std::size_t i = 0; i < sizeof(Integer); ++i) {
    to[i] = static_cast<std::byte>(value >> (8 * (sizeof(Integer) - 1 - i)));
  }
}

template <std::unsigned_integral Integer>
Integer load_big_endian(const std::byte* from) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(Integer); ++i) {
    value = value << 8 | std::to_integer<std::uint64_t>(from[i]);
  }
  return static_cast<Integer>(value);
}

}  // namespace sarsen
