// Payloads that describe themselves: each 4 KiB block that a test writes says which image, block
// and write it belongs to, so that a read proves where its bytes come from (invariant I10: no
// phantom data, no other tenant's data, no torn block).
//
// Layout     bytes 0-7 image, 8-15 block, 16-23 write id, 24-27 crc32c of bytes 0-23, 28-31 magic;
// the
//            rest is words derived from those. Little-endian, as in memory.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "dataplane/base/units.h"

namespace sarsen::model {

// Unique over all writes of a run. 0 stands for "never written": zeros.
using WriteId = Strong<struct WriteIdTag>;

struct PayloadName {
  std::uint64_t image = 0;
  BlockIndex block;
  WriteId write;
  bool operator==(const PayloadName&) const = default;
};

using BlockBytes = std::span<std::byte, kBlockBytes>;
using ConstBlockBytes = std::span<const std::byte, kBlockBytes>;

void fill_block(BlockBytes into, const PayloadName& name);
// Blocks `first`, `first` + 1, ... of one write; `into` is made of whole blocks.
void fill_blocks(std::span<std::byte> into, std::uint64_t image, BlockIndex first, WriteId write);

// What a block says it is, when every one of its bytes agrees; write id 0 for a block of zeros.
std::optional<PayloadName> read_block(ConstBlockBytes block);

// For failure messages: "write 17 to block 3 of image 1", "zeros", "first 1536 bytes of write 9,
// then ...".
std::string describe_block(ConstBlockBytes block);

}  // namespace sarsen::model
