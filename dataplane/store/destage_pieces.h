// Journal data of a destage batch in memory, found by device block.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "dataplane/base/crc32c.h"
#include "dataplane/runtime/env.h"
#include "dataplane/store/destager.h"

namespace sarsen {

struct Destager::Pieces {
  struct Piece {
    BlockIndex start;
    std::uint32_t blocks = 0;
    Buffer data;
    std::vector<bool> bad;  // blocks that could not be read
  };

  void add(Piece piece) { list.push_back(std::move(piece)); }
  // After the last add(), before the first look.
  void sort() {
    std::sort(list.begin(), list.end(),
              [](const Piece& a, const Piece& b) { return a.start < b.start; });
  }
  // All in one piece: they were one source.
  std::span<const std::byte> blocks(BlockIndex source, std::uint32_t count) const {
    const Piece& piece = of(source);
    return piece.data.span((source.value - piece.start.value) * kBlockBytes,
                           std::size_t{count} * kBlockBytes);
  }
  // The data of all `moves`, when it lies in one piece of memory in their order.
  std::optional<std::span<const std::byte>> together(std::span<const Move> moves) const {
    const Piece& piece = of(moves.front().source);
    const std::uint64_t first = moves.front().source.value - piece.start.value;
    std::uint64_t blocks = 0;
    for (const Move& move : moves) {
      if (move.source.value != moves.front().source.value + blocks) return std::nullopt;
      blocks += move.blocks;
    }
    if (first + blocks > piece.blocks) return std::nullopt;
    return piece.data.span(first * kBlockBytes, blocks * kBlockBytes);
  }
  bool is_good(BlockIndex source, std::uint32_t checksum) const {
    const Piece& piece = of(source);
    return !piece.bad[source.value - piece.start.value] && crc32c(blocks(source, 1)) == checksum;
  }

 private:
  const Piece& of(BlockIndex source) const {
    auto after = std::upper_bound(list.begin(), list.end(), source,
                                  [](BlockIndex s, const Piece& p) { return s < p.start; });
    SARSEN_ASSERT(after != list.begin(), "every planned block was read");
    const Piece& piece = *--after;
    SARSEN_ASSERT(source.value - piece.start.value < piece.blocks, "every planned block was read");
    return piece;
  }
  std::vector<Piece> list;
};

}  // namespace sarsen
