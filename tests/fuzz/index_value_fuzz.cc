// Keys and values of the index: whatever decodes is valid and encodes to the same bytes, and
// nothing else happens. The first byte says what the rest is: a leaf, the bitmap of a chunk, or a
// key. The checksum of a value is put right, since the fuzzer cannot guess it.
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "dataplane/base/assert.h"
#include "dataplane/base/codec.h"
#include "dataplane/base/crc32c.h"
#include "dataplane/store/index/chunk_bitmap.h"
#include "dataplane/store/index/index_leaf_codec.h"

namespace sarsen {
namespace {

// Large enough for every length of varint and word that matters.
constexpr std::uint32_t kChunkBlocks = 1000;

std::vector<std::byte> seal(std::span<const std::byte> body, std::span<const std::byte> key) {
  std::vector<std::byte> value(body.begin(), body.end());
  value.resize(body.size() + sizeof(std::uint32_t));
  store_little_endian(value.data() + body.size(), crc32c(body, crc32c(key)));
  return value;
}

bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

void try_leaf(std::span<const std::byte> body) {
  const LeafKeyBytes key = encode_leaf_key({{PoolId(3), 1, 2, 1}, 5});
  const auto value = seal(body, key);
  auto leaf = decode_leaf(value, key);
  if (!leaf) return;
  SARSEN_ASSERT(leaf->validate().has_value(), "what decodes is valid");
  LeafValueBuffer buffer;
  SARSEN_ASSERT(same(encode_leaf(*leaf, key, buffer), value), "I-INDEX-4: one encoding per leaf");
  // What a disk can hold, the operations can change.
  for (std::uint32_t block = 0; block < kLeafBlocks; ++block) (void)leaf->lookup(block);
  (void)leaf->runs(0, kLeafBlocks);
  (void)leaf->mark_corrupt(5, 6);
  (void)leaf->remove(3, 5);
  SARSEN_ASSERT(leaf->validate().has_value(), "I-INDEX-2: a change keeps a leaf valid");
}

void try_bitmap(std::span<const std::byte> body) {
  const ChunkKeyBytes key = encode_chunk_key(LaneId(1), ChunkIndex(2));
  const auto value = seal(body, key);
  const auto used = decode_chunk_bitmap(value, key, kChunkBlocks);
  if (!used) return;
  SARSEN_ASSERT(same(encode_chunk_bitmap(*used, key), value), "one encoding per bitmap");
}

void try_key(std::span<const std::byte> bytes) {
  const auto key = decode_leaf_key(bytes);
  if (!key) return;
  SARSEN_ASSERT(same(encode_leaf_key(*key), bytes), "one encoding per key");
}

}  // namespace
}  // namespace sarsen

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto rest = std::as_bytes(std::span(data, size)).subspan(1);
  switch (data[0] % 3) {
    case 0: sarsen::try_leaf(rest); break;
    case 1: sarsen::try_bitmap(rest); break;
    default: sarsen::try_key(rest); break;
  }
  return 0;
}
