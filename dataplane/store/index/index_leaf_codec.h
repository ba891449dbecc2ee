// The stored form of an IndexLeaf: docs/on_disk_format/index.md has the byte table and an example.
//
// Canonical: a leaf has one encoding, and a decoder accepts nothing else. The checksum at the end
// covers the key as well, so that a value under a wrong key is corrupt. A decoder believes nothing:
// it reads within its bytes, allocates at most kLeafBlocks extents, and checks every rule of Extent
// and IndexLeaf.
//
// Invariants
//   I-INDEX-4  decode(encode(leaf)) is that leaf, and encode(decode(bytes)) is those bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/base/result.h"
#include "dataplane/store/index/index_leaf.h"
#include "dataplane/store/index/varint.h"

namespace sarsen {

inline constexpr std::uint8_t kLeafVersion = 1;

// The longest value: a header and bases, and for each extent a tag, a placement and an option byte,
// five numbers, all options, and a checksum and a seal for each stored block.
inline constexpr std::size_t kExtentBytesMax =
    3 + 5 * kVarintBytesMax + (2 + 3) + kVarintBytesMax + kVarintBytesMax + (1 + kVarintBytesMax) +
    kLeafBlocks * (sizeof(std::uint32_t) + kNonceBytes + kTagBytes);
inline constexpr std::size_t kLeafValueBytesMax =
    2 + 2 * kVarintBytesMax + kLeafBlocks * kExtentBytesMax + sizeof(std::uint32_t);

using LeafValueBuffer = std::array<std::byte, kLeafValueBytesMax>;

// Encodes into `buffer` and returns the part that was written. `key` is the key of the value.
std::span<const std::byte> encode_leaf(const IndexLeaf& leaf, std::span<const std::byte> key,
                                       LeafValueBuffer& buffer);

// Errors: value_corrupt, value_malformed, format_unsupported.
Result<IndexLeaf> decode_leaf(std::span<const std::byte> value, std::span<const std::byte> key);

}  // namespace sarsen
