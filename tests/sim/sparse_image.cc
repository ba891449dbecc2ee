#include "tests/sim/sparse_image.h"

#include <algorithm>
#include <cstring>

#include "dataplane/base/assert.h"
#include "dataplane/base/crc32c.h"

namespace sarsen::sim {

SparseImage::SparseImage(std::uint64_t size_bytes)
    : size_bytes_(size_bytes), chunks_((size_bytes + kChunkBytes - 1) / kChunkBytes) {}

SparseImage::Chunk& SparseImage::writable(std::uint64_t index) {
  std::shared_ptr<Chunk>& chunk = chunks_[index];
  if (!chunk) {
    chunk = std::make_shared<Chunk>();
  } else if (chunk.use_count() > 1) {
    chunk = std::make_shared<Chunk>(*chunk);
  }
  return *chunk;
}

void SparseImage::read(std::uint64_t offset, std::span<std::byte> into) const {
  SARSEN_ASSERT(offset + into.size() <= size_bytes_, "reads stay within the image");
  while (!into.empty()) {
    const std::uint64_t within = offset % kChunkBytes;
    const std::size_t length = std::min<std::uint64_t>(into.size(), kChunkBytes - within);
    const std::shared_ptr<Chunk>& chunk = chunks_[offset / kChunkBytes];
    if (chunk) {
      std::memcpy(into.data(), chunk->data() + within, length);
    } else {
      std::memset(into.data(), 0, length);
    }
    into = into.subspan(length);
    offset += length;
  }
}

void SparseImage::write(std::uint64_t offset, std::span<const std::byte> from) {
  SARSEN_ASSERT(offset + from.size() <= size_bytes_, "writes stay within the image");
  while (!from.empty()) {
    const std::uint64_t within = offset % kChunkBytes;
    const std::size_t length = std::min<std::uint64_t>(from.size(), kChunkBytes - within);
    std::memcpy(writable(offset / kChunkBytes).data() + within, from.data(), length);
    from = from.subspan(length);
    offset += length;
  }
}

void SparseImage::zero(std::uint64_t offset, std::uint64_t size) {
  SARSEN_ASSERT(offset + size <= size_bytes_, "zeroing stays within the image");
  while (size != 0) {
    const std::uint64_t within = offset % kChunkBytes;
    const std::uint64_t length = std::min(size, kChunkBytes - within);
    const std::uint64_t index = offset / kChunkBytes;
    if (length == kChunkBytes) {
      chunks_[index].reset();
    } else if (chunks_[index]) {
      std::memset(writable(index).data() + within, 0, length);
    }
    offset += length;
    size -= length;
  }
}

bool SparseImage::allocated(std::uint64_t offset, std::uint64_t size) const {
  const std::uint64_t last = (offset + size - 1) / kChunkBytes;
  for (std::uint64_t index = offset / kChunkBytes; index <= last; ++index) {
    if (!chunks_[index]) return false;
  }
  return true;
}

std::uint64_t SparseImage::allocated_bytes() const {
  const auto existing = std::count_if(chunks_.begin(), chunks_.end(),
                                      [](const auto& chunk) { return chunk != nullptr; });
  return static_cast<std::uint64_t>(existing) * kChunkBytes;
}

std::uint64_t SparseImage::fingerprint() const {
  static constexpr Chunk kZeros{};
  std::uint64_t hash = size_bytes_;
  for (std::uint64_t index = 0; index < chunks_.size(); ++index) {
    if (!chunks_[index] || *chunks_[index] == kZeros) continue;
    const std::uint64_t word = (index << 32) | crc32c(*chunks_[index]);
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace sarsen::sim
