// The bytes of a simulated device: chunks that exist once written. Copies share chunks until one of
// them is written, so that keeping an image as it was costs little.
//
// Not thread-safe. Offsets and sizes are bytes within size_bytes().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace sarsen::sim {

class SparseImage {
 public:
  static constexpr std::uint64_t kChunkBytes = 32 * 1024;

  explicit SparseImage(std::uint64_t size_bytes);

  std::uint64_t size_bytes() const { return size_bytes_; }
  // What was never written reads as zeros.
  void read(std::uint64_t offset, std::span<std::byte> into) const;
  void write(std::uint64_t offset, std::span<const std::byte> from);
  // Reads as zeros afterwards; whole chunks are given back.
  void zero(std::uint64_t offset, std::uint64_t size);
  // True when every chunk of the range exists.
  bool allocated(std::uint64_t offset, std::uint64_t size) const;
  std::uint64_t allocated_bytes() const;
  // Same for images of equal content, whatever is allocated.
  std::uint64_t fingerprint() const;

 private:
  using Chunk = std::array<std::byte, kChunkBytes>;
  Chunk& writable(std::uint64_t index);

  std::uint64_t size_bytes_;
  std::vector<std::shared_ptr<Chunk>> chunks_;
};

}  // namespace sarsen::sim
