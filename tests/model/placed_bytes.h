// PlacedBytes: a client's memory, aligned to blocks or certainly not. A store copies what is not
// aligned, so where malloc happens to put a buffer would decide what a run does, and runs would not
// repeat.
//
// Owns its bytes, zeroed. Not copied: the copy could lie elsewhere.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <span>

#include "dataplane/base/units.h"

namespace sarsen::model {

class PlacedBytes {
 public:
  PlacedBytes(std::size_t size, bool aligned)
      : size_(size),
        memory_(static_cast<std::byte*>(
            ::operator new(size + kUnalignedBy, std::align_val_t(kBlockBytes)))),
        data_(memory_.get() + (aligned ? 0 : kUnalignedBy)) {
    std::memset(data_, 0, size_);
  }
  PlacedBytes(const PlacedBytes&) = delete;
  PlacedBytes& operator=(const PlacedBytes&) = delete;

  std::span<std::byte> span() const { return {data_, size_}; }
  std::size_t size() const { return size_; }

 private:
  static constexpr std::size_t kUnalignedBy = 64;
  struct Free {
    void operator()(std::byte* memory) const {
      ::operator delete(memory, std::align_val_t(kBlockBytes));
    }
  };

  std::size_t size_;
  std::unique_ptr<std::byte, Free> memory_;
  std::byte* data_;
};

}  // namespace sarsen::model
