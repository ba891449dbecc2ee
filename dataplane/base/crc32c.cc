#include "dataplane/base/crc32c.h"

#include <algorithm>

#include <isa-l/crc.h>

namespace sarsen {

std::uint32_t crc32c(std::span<const std::byte> data, std::uint32_t previous) {
  // The library takes lengths as int and leaves both inversions to the caller.
  constexpr std::size_t kPieceMax = 1u << 30;
  std::uint32_t state = ~previous;
  while (!data.empty()) {
    const std::size_t piece = std::min(data.size(), kPieceMax);
    // The parameter is not const in ISA-L 2.30, though it is only read.
    auto* bytes = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(data.data()));
    state = crc32_iscsi(bytes, static_cast<int>(piece), state);
    data = data.subspan(piece);
  }
  return ~state;
}

}  // namespace sarsen
