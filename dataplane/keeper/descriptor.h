// Ownership of an open file.
#pragma once

#include <unistd.h>

namespace sarsen::keeper {

// An open descriptor, closed when it dies.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(Descriptor&& other) noexcept : value_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  ~Descriptor() { reset(); }

  int get() const { return value_; }
  explicit operator bool() const { return value_ >= 0; }
  int release() {
    const int value = value_;
    value_ = -1;
    return value;
  }
  void reset(int value = -1) {
    if (value_ >= 0) ::close(value_);
    value_ = value;
  }

 private:
  int value_ = -1;
};

}  // namespace sarsen::keeper
