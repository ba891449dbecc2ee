// Block-aligned memory for blocking I/O on threads that have no BufferPool.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <span>

#include "dataplane/base/units.h"

namespace sarsen {

// Owns `size` bytes (rounded up to whole blocks), zeroed, aligned to kBlockBytes.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(std::size_t size)
      : size_(round_up(size, kBlockBytes)),
        data_(static_cast<std::byte*>(::operator new(size_, std::align_val_t(kBlockBytes)))) {
    std::memset(data_.get(), 0, size_);
  }

  std::byte* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  std::span<std::byte> span() const { return {data_.get(), size_}; }
  std::span<std::byte> span(std::size_t offset, std::size_t length) const {
    return span().subspan(offset, length);
  }

 private:
  struct Free {
    void operator()(std::byte* data) const {
      ::operator delete(data, std::align_val_t(kBlockBytes));
    }
  };
  std::size_t size_ = 0;
  std::unique_ptr<std::byte, Free> data_;
};

}  // namespace sarsen
