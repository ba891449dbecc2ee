// Journal groups: the header part of one, with its records and the echo of the group before. Magic,
// device, place, size and checksum are put right, since the fuzzer cannot guess them. What decodes
// encodes to the same bytes.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "dataplane/base/assert.h"
#include "dataplane/base/crc32c.h"
#include "dataplane/store/journal_format.h"
#include "dataplane/store/metadata/aligned_buffer.h"

namespace sarsen {
namespace {

constexpr std::uint64_t kSalt = 42;
constexpr std::uint32_t kSegment = 3;
constexpr std::uint32_t kPosition = 5;
constexpr std::size_t kBlocksMax = 4;
// Of the header (docs/on_disk_format/journal.md).
constexpr std::size_t kChecksumAt = 4;
constexpr std::size_t kDeviceAt = 8;
constexpr std::size_t kGenerationAt = 24;  // what the input is from here on
constexpr std::size_t kSegmentAt = 44;
constexpr std::size_t kPositionAt = 52;
constexpr std::size_t kHeaderBlocksAt = 80;

void put_u32(std::span<std::byte> part, std::size_t at, std::uint32_t value) {
  std::memcpy(part.data() + at, &value, sizeof(value));
}

void try_group(std::span<const std::byte> input) {
  const Uuid device{std::byte{7}, std::byte{8}};
  const std::size_t bytes = std::min(input.size() + kGenerationAt, kBlocksMax * kBlockBytes);
  AlignedBuffer buffer(bytes);
  const auto part = buffer.span();
  std::copy_n(input.begin(), bytes - kGenerationAt, part.begin() + kGenerationAt);
  std::memcpy(part.data(), "SGRP", 4);
  std::memcpy(part.data() + kDeviceAt, device.data(), device.size());
  put_u32(part, kSegmentAt, kSegment);
  put_u32(part, kPositionAt, kPosition);
  put_u32(part, kHeaderBlocksAt, static_cast<std::uint32_t>(part.size() / kBlockBytes));
  const std::uint32_t seed = crc32c(std::as_bytes(std::span(&kSalt, 1)));
  put_u32(part, kChecksumAt, crc32c(part.subspan(kDeviceAt), seed));

  const auto probe = probe_group(part.first(kBlockBytes), device, kSegment, kPosition);
  SARSEN_ASSERT(probe && std::uint64_t{probe->header_blocks} * kBlockBytes == part.size(),
                "it was put right");
  const auto group = decode_group(part, kSalt, device, kSegment, kPosition);
  if (!group) return;
  AlignedBuffer again(part.size());
  encode_group(group->header, group->records, group->echo, kSalt, again.span());
  SARSEN_ASSERT(std::ranges::equal(again.span(), part), "one encoding per group");
  SARSEN_ASSERT(!decode_group(part, kSalt + 1, device, kSegment, kPosition),
                "data of a guest cannot pass for a group");
  SARSEN_ASSERT(!decode_group(part, kSalt, device, kSegment, kPosition + 1),
                "a group names its place");
}

}  // namespace
}  // namespace sarsen

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  sarsen::try_group(std::as_bytes(std::span(data, size)));
  return 0;
}
