// Placement, splits and the order of RocksDB all stand on the bytes of a key: they may never
// change.
#include "dataplane/store/index/object_key.h"

#include <algorithm>
#include <set>
#include <unordered_set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dataplane/base/rng.h"
#include "dataplane/store/index/error.h"

namespace sarsen {
namespace {

std::string text(const LeafKeyBytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string hex(std::span<const std::byte> bytes) {
  std::string result;
  for (const std::byte byte : bytes) {
    result += "0123456789abcdef"[std::to_integer<unsigned>(byte) >> 4];
    result += "0123456789abcdef"[std::to_integer<unsigned>(byte) & 15];
  }
  return result;
}

// Small fields half of the time, so that keys share families and objects.
LeafKey random_key(Rng& rng) {
  const auto number = [&] { return rng.chance(0.5) ? rng.below(4) : rng.next(); };
  LeafKey key;
  key.object.pool = PoolId(static_cast<std::uint32_t>(number()));
  key.object.family = number();
  key.object.branch = number();
  key.object.object_number = number();
  key.leaf = static_cast<std::uint16_t>(rng.below(kLeavesPerObject));
  return key;
}

TEST(PlacementHash, has_the_values_it_always_had) {
  // A changed hash would look for every object in the wrong placement group. Computed independently
  // from the definition in the header.
  EXPECT_EQ(placement_hash(0, 0), 0xa706dd2fu);
  EXPECT_EQ(placement_hash(1, 0), 0x5e41ab08u);
  EXPECT_EQ(placement_hash(1, 1), 0xf18d6ce9u);
  EXPECT_EQ(placement_hash(0x0123456789abcdef, 0xffffffffffffffff), 0x1d53f6b5u);
}

TEST(PlacementHash, spreads_the_objects_of_one_image_evenly) {
  // Uneven groups would make uneven devices. 64 groups, 64 Ki objects: 1024 expected, sigma 32.
  std::vector<std::uint32_t> counts(64);
  for (std::uint64_t number = 0; number < 65536; ++number) ++counts[placement_hash(7, number) % 64];
  EXPECT_GT(*std::min_element(counts.begin(), counts.end()), 1024u - 5 * 32);
  EXPECT_LT(*std::max_element(counts.begin(), counts.end()), 1024u + 5 * 32);
}

TEST(PlacementHash, does_not_depend_on_the_branch) {
  // Clones share extents with their parents only while they live on the same devices.
  ObjectKey parent{.pool = PoolId(1), .family = 5, .branch = 1, .object_number = 9};
  ObjectKey clone = parent;
  clone.branch = 77;
  EXPECT_EQ(placement_group(parent, 20), placement_group(clone, 20));
}

TEST(ReverseBits, reverses) {
  // The high bits of the key must be the low bits of the hash.
  EXPECT_EQ(reverse_bits(0x00000001), 0x80000000u);
  EXPECT_EQ(reverse_bits(0xf0000002), 0x4000000fu);
  Rng rng(1);
  for (int i = 0; i < 100; ++i) {
    const auto value = static_cast<std::uint32_t>(rng.next());
    EXPECT_EQ(reverse_bits(reverse_bits(value)), value);
  }
}

TEST(LeafKey, has_the_bytes_the_document_shows) {
  // Golden bytes of docs/on_disk_format/index.md.
  const LeafKey key{{.pool = PoolId(3), .family = 1, .branch = 2, .object_number = 1}, 5};
  EXPECT_EQ(hex(encode_leaf_key(key)),
            "000000039736b18f0000000000000001000000000000000100000000000000020005");
}

TEST(LeafKey, survives_encoding_and_keeps_its_order) {
  // RocksDB compares bytes; scans of an object or a group rely on the order of the fields.
  Rng rng(2);
  for (int i = 0; i < 20000; ++i) {
    const LeafKey a = random_key(rng);
    LeafKey b = random_key(rng);
    if (rng.chance(0.5)) b.object.pool = a.object.pool;
    if (rng.chance(0.5)) b.object.family = a.object.family;
    if (rng.chance(0.5)) b.object.object_number = a.object.object_number;
    if (rng.chance(0.5)) b.object.branch = a.object.branch;
    const auto decoded = decode_leaf_key(encode_leaf_key(a));
    ASSERT_TRUE(decoded.has_value());
    ASSERT_EQ(*decoded, a);
    ASSERT_EQ(key_order(a, b), text(encode_leaf_key(a)) <=> text(encode_leaf_key(b)));
  }
}

TEST(LeafKey, refuses_bytes_that_no_encoder_wrote) {
  // A rotten key must not name another object.
  const LeafKeyBytes good = encode_leaf_key({{PoolId(1), 2, 3, 4}, 63});
  const auto refused = [](std::span<const std::byte> bytes) {
    const auto decoded = decode_leaf_key(bytes);
    return !decoded && is(decoded.error(), IndexError::key_malformed);
  };
  EXPECT_TRUE(refused({}));
  EXPECT_TRUE(refused(std::span(good).first(33)));
  std::vector<std::byte> longer(good.begin(), good.end());
  longer.push_back(std::byte{0});
  EXPECT_TRUE(refused(longer));
  for (std::size_t i = 4; i < 24; ++i) {  // hash, family, object number
    LeafKeyBytes bad = good;
    bad[i] ^= std::byte{1};
    EXPECT_TRUE(refused(bad)) << "byte " << i;
  }
  LeafKeyBytes bad = good;
  bad[33] = std::byte{64};
  EXPECT_TRUE(refused(bad));
}

TEST(GroupKeyRange, holds_exactly_the_keys_of_its_group) {
  // A scan of a placement group must see all of its leaves and none of its neighbours'.
  Rng rng(3);
  for (int i = 0; i < 20000; ++i) {
    LeafKey key = random_key(rng);
    if (rng.chance(0.1)) key.object.pool = PoolId(0xffffffff);
    const auto bits = static_cast<std::uint32_t>(rng.below(33));
    const std::uint32_t own = placement_group(key.object, bits);
    const auto bytes = encode_leaf_key(key);
    ASSERT_TRUE(group_key_range(key.object.pool, own, bits).contains(bytes));
    const std::uint64_t groups = std::uint64_t{1} << bits;
    const auto other = static_cast<std::uint32_t>((own + 1 + rng.below(groups)) % groups);
    ASSERT_EQ(group_key_range(key.object.pool, other, bits).contains(bytes), other == own);
    ASSERT_FALSE(group_key_range(PoolId(key.object.pool.value + 1), own, bits).contains(bytes));
  }
}

TEST(GroupKeyRange, is_cut_in_the_middle_by_a_split) {
  // A split moves one contiguous half: no key is touched (rule S5).
  for (std::uint32_t bits = 0; bits < 6; ++bits) {
    for (std::uint32_t group = 0; group < 1u << bits; ++group) {
      const KeyRange whole = group_key_range(PoolId(9), group, bits);
      const KeyRange low = group_key_range(PoolId(9), group, bits + 1);
      const KeyRange high = group_key_range(PoolId(9), group + (1u << bits), bits + 1);
      EXPECT_EQ(whole.begin, low.begin);
      EXPECT_EQ(low.end, high.begin);
      EXPECT_EQ(high.end, whole.end);
    }
  }
}

TEST(GroupKeyRange, of_the_last_pool_has_no_upper_bound) {
  // Adding one to the last pool wraps; an empty upper bound must mean "to the end", not "nothing".
  const KeyRange range = pool_key_range(PoolId(0xffffffff));
  EXPECT_TRUE(range.end.empty());
  EXPECT_TRUE(range.contains(encode_leaf_key({{PoolId(0xffffffff), 1, 1, 1}, 1})));
  EXPECT_FALSE(range.contains(encode_leaf_key({{PoolId(0xfffffffe), 1, 1, 1}, 1})));
}

TEST(ObjectKeyRange, holds_the_leaves_of_one_branch_of_one_object) {
  // Deleting an image's object must not delete the snapshot beside it.
  Rng rng(4);
  for (int i = 0; i < 5000; ++i) {
    LeafKey key = random_key(rng);
    if (rng.chance(0.2)) key.object.branch = ~std::uint64_t{0};
    const KeyRange range = object_key_range(key.object);
    ASSERT_TRUE(range.contains(encode_leaf_key(key)));
    LeafKey neighbour = key;
    neighbour.object.branch += rng.chance(0.5) ? 1 : -1;
    ASSERT_FALSE(range.contains(encode_leaf_key(neighbour)));
  }
}

TEST(LeafKeyHash, uses_every_field) {
  // Tables in memory would degrade to lists if leaves or branches of an object collided.
  std::unordered_set<std::size_t> objects;
  std::unordered_set<std::size_t> leaves;
  std::size_t count = 0;
  for (std::uint32_t pool = 0; pool < 4; ++pool) {
    for (std::uint64_t family = 0; family < 4; ++family) {
      for (std::uint64_t branch = 0; branch < 4; ++branch) {
        for (std::uint64_t number = 0; number < 64; ++number, ++count) {
          const ObjectKey object{PoolId(pool), family, branch, number};
          objects.insert(std::hash<ObjectKey>{}(object));
          leaves.insert(std::hash<LeafKey>{}({object, 1}));
          leaves.insert(std::hash<LeafKey>{}({object, 2}));
        }
      }
    }
  }
  EXPECT_EQ(objects.size(), count);
  EXPECT_EQ(leaves.size(), 2 * count);
}

}  // namespace
}  // namespace sarsen
