// CRC-32C (Castagnoli, RFC 3720 appendix B.4): initial value and final xor 0xffffffff.
// crc32c("123456789") is 0xe3069283.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sarsen {

// Checksum of `data`, or of the concatenation when `previous` is the checksum of what came before.
std::uint32_t crc32c(std::span<const std::byte> data, std::uint32_t previous = 0);

}  // namespace sarsen
