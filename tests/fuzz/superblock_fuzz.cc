// Superblocks: the fields of one copy, with magic, version, place, block size and checksum put
// right, since the fuzzer cannot guess them. What decodes has a geometry that fits its device, and
// survives being written again; any of its bits flipped later is noticed.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "dataplane/base/assert.h"
#include "dataplane/base/crc32c.h"
#include "dataplane/store/metadata/aligned_buffer.h"
#include "dataplane/store/superblock.h"

namespace sarsen {
namespace {

constexpr std::size_t kVersionOffset = 8;
constexpr std::size_t kCopyOffset = 12;
constexpr std::size_t kBlockSizeOffset = 52;
constexpr std::size_t kChecksumOffset = kBlockBytes - 4;

void put_u32(std::span<std::byte> block, std::size_t at, std::uint32_t value) {
  std::memcpy(block.data() + at, &value, sizeof(value));
}

// The first byte says which copy, the second whether magic and version are to be put right.
void try_superblock(std::span<const std::byte> input) {
  const auto copy = std::to_integer<std::uint32_t>(input[0]) % kSuperblockCopies;
  const bool guessable = input[1] != std::byte{0};
  AlignedBuffer buffer(kBlockBytes);
  const auto block = buffer.span();
  const auto fields = input.subspan(2);
  std::copy_n(fields.begin(), std::min(fields.size(), kChecksumOffset), block.begin());
  if (guessable) {
    std::memcpy(block.data(), "SARSENSB", 8);
    put_u32(block, kVersionOffset, kFormatVersion);
    put_u32(block, kCopyOffset, copy);
    put_u32(block, kBlockSizeOffset, kBlockBytes);
    put_u32(block, kChecksumOffset, crc32c(block.first(kChecksumOffset)));
  }
  const auto decoded = decode_superblock(copy, block);
  if (!decoded) return;
  SARSEN_ASSERT(validate_geometry(decoded->geometry).has_value(), "what decodes is possible");
  AlignedBuffer again(kBlockBytes);
  encode_superblock(*decoded, copy, again.span());
  const auto same = decode_superblock(copy, again.span());
  SARSEN_ASSERT(same && *same == *decoded, "a superblock survives being written");
  const std::uint32_t other = (copy + 1) % kSuperblockCopies;
  SARSEN_ASSERT(!decode_superblock(other, again.span()), "a copy names its place");
  again.span()[std::to_integer<std::size_t>(input.back()) * 16] ^= std::byte{1};
  SARSEN_ASSERT(!decode_superblock(copy, again.span()), "a flipped bit is noticed");
}

}  // namespace
}  // namespace sarsen

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size >= 2) sarsen::try_superblock(std::as_bytes(std::span(data, size)));
  return 0;
}
