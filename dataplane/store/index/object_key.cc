#include "dataplane/store/index/object_key.h"

#include <string_view>
#include <tuple>

#include "dataplane/base/assert.h"
#include "dataplane/store/index/big_endian.h"
#include "dataplane/store/index/error.h"

namespace sarsen {
namespace {

constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15u;

constexpr std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

constexpr std::size_t kPoolAt = 0;
constexpr std::size_t kHashAt = 4;
constexpr std::size_t kFamilyAt = 8;
constexpr std::size_t kObjectNumberAt = 16;
constexpr std::size_t kBranchAt = 24;
constexpr std::size_t kLeafAt = 32;
static_assert(kLeafAt + sizeof(std::uint16_t) == kLeafKeyBytes);

std::string as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The first key at or after (pool, reversed hash); `position` is both, as one 64-bit number.
std::string hash_prefix(std::uint64_t position) {
  std::array<std::byte, kFamilyAt> bytes;
  store_big_endian(bytes.data(), position);
  return as_text(bytes);
}

// The first key in byte order after all keys that start with `prefix`.
std::string after_prefix(std::string prefix) {
  while (!prefix.empty() && static_cast<unsigned char>(prefix.back()) == 0xff) prefix.pop_back();
  if (!prefix.empty()) prefix.back() = static_cast<char>(prefix.back() + 1);
  return prefix;
}

std::uint64_t object_digest(const ObjectKey& key) {
  std::uint64_t digest = mix(key.family + kGolden);
  digest = mix(digest + key.object_number);
  digest = mix(digest ^ (key.branch * kGolden));
  return mix(digest + key.pool.value);
}

}  // namespace

std::uint32_t placement_hash(std::uint64_t family, std::uint64_t object_number) {
  return static_cast<std::uint32_t>(mix(mix(family + kGolden) + kGolden * (object_number + 1)) >>
                                    32);
}

std::uint32_t reverse_bits(std::uint32_t value) {
  value = (value & 0x55555555u) << 1 | (value >> 1 & 0x55555555u);
  value = (value & 0x33333333u) << 2 | (value >> 2 & 0x33333333u);
  value = (value & 0x0f0f0f0fu) << 4 | (value >> 4 & 0x0f0f0f0fu);
  value = (value & 0x00ff00ffu) << 8 | (value >> 8 & 0x00ff00ffu);
  return value << 16 | value >> 16;
}

std::strong_ordering key_order(const LeafKey& a, const LeafKey& b) {
  if (a.object == b.object) return a.leaf <=> b.leaf;  // without the hashes
  const auto fields = [](const LeafKey& key) {
    const ObjectKey& object = key.object;
    return std::tuple(object.pool,
                      reverse_bits(placement_hash(object.family, object.object_number)),
                      object.family, object.object_number, object.branch, key.leaf);
  };
  return fields(a) <=> fields(b);
}

LeafKeyBytes encode_leaf_key(const LeafKey& key) {
  SARSEN_ASSERT(key.leaf < kLeavesPerObject, "a leaf is within its object");
  const ObjectKey& object = key.object;
  LeafKeyBytes bytes;
  store_big_endian(bytes.data() + kPoolAt, object.pool.value);
  store_big_endian(bytes.data() + kHashAt,
                   reverse_bits(placement_hash(object.family, object.object_number)));
  store_big_endian(bytes.data() + kFamilyAt, object.family);
  store_big_endian(bytes.data() + kObjectNumberAt, object.object_number);
  store_big_endian(bytes.data() + kBranchAt, object.branch);
  store_big_endian(bytes.data() + kLeafAt, key.leaf);
  return bytes;
}

Result<LeafKey> decode_leaf_key(std::span<const std::byte> bytes) {
  if (bytes.size() != kLeafKeyBytes) {
    return fail(make_error(IndexError::key_malformed,
                           "length " + std::to_string(bytes.size()) + ", not 34"));
  }
  LeafKey key;
  key.object.pool = PoolId(load_big_endian<std::uint32_t>(bytes.data() + kPoolAt));
  const auto reversed = load_big_endian<std::uint32_t>(bytes.data() + kHashAt);
  key.object.family = load_big_endian<std::uint64_t>(bytes.data() + kFamilyAt);
  key.object.object_number = load_big_endian<std::uint64_t>(bytes.data() + kObjectNumberAt);
  key.object.branch = load_big_endian<std::uint64_t>(bytes.data() + kBranchAt);
  key.leaf = load_big_endian<std::uint16_t>(bytes.data() + kLeafAt);
  if (reversed != reverse_bits(placement_hash(key.object.family, key.object.object_number))) {
    return fail(make_error(IndexError::key_malformed, "the hash is not that of the object"));
  }
  if (key.leaf >= kLeavesPerObject) {
    return fail(make_error(IndexError::key_malformed, "leaf " + std::to_string(key.leaf) + " of " +
                                                          std::to_string(kLeavesPerObject)));
  }
  return key;
}

bool KeyRange::contains(std::span<const std::byte> key) const {
  const std::string_view text(reinterpret_cast<const char*>(key.data()), key.size());
  return text >= begin && (end.empty() || text < end);
}

KeyRange group_key_range(PoolId pool, std::uint32_t group, std::uint32_t group_bits) {
  SARSEN_ASSERT(group_bits <= 32, "the hash has 32 bits");
  SARSEN_ASSERT(std::uint64_t{group} >> group_bits == 0, "a group is below 2^group_bits");
  const std::uint64_t width = std::uint64_t{1} << (32 - group_bits);
  const std::uint64_t begin = std::uint64_t{pool.value} << 32 | reverse_bits(group);
  const std::uint64_t end = begin + width;
  // Past the last group of the last pool the position wraps to zero.
  return {hash_prefix(begin), end == 0 ? std::string() : hash_prefix(end)};
}

KeyRange pool_key_range(PoolId pool) {
  return group_key_range(pool, 0, 0);
}

KeyRange object_key_range(const ObjectKey& object) {
  const LeafKeyBytes first = encode_leaf_key({object, 0});
  const std::string prefix = as_text(std::span(first).first(kLeafAt));
  return {prefix, after_prefix(prefix)};
}

std::uint32_t placement_group(const ObjectKey& object, std::uint32_t group_bits) {
  SARSEN_ASSERT(group_bits <= 32, "the hash has 32 bits");
  const std::uint64_t mask = (std::uint64_t{1} << group_bits) - 1;
  return static_cast<std::uint32_t>(placement_hash(object.family, object.object_number) & mask);
}

}  // namespace sarsen

std::size_t std::hash<sarsen::ObjectKey>::operator()(const sarsen::ObjectKey& key) const noexcept {
  return sarsen::object_digest(key);
}

std::size_t std::hash<sarsen::LeafKey>::operator()(const sarsen::LeafKey& key) const noexcept {
  return sarsen::mix(sarsen::object_digest(key.object) + key.leaf);
}
