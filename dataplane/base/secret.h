// A value that must never be seen: keys, passphrases, tickets.
//
// It cannot be printed, logged, compared or copied by accident; reveal() is the one way out, so
// that every use can be found by its name. The bytes are wiped when it dies.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace sarsen {

class Secret {
 public:
  Secret() = default;
  explicit Secret(std::string value) : value_(std::move(value)) {}
  Secret(Secret&& other) noexcept : value_(std::move(other.value_)) { other.wipe(); }
  Secret& operator=(Secret&& other) noexcept {
    if (this != &other) {
      wipe();
      value_ = std::move(other.value_);
      other.wipe();
    }
    return *this;
  }
  ~Secret() { wipe(); }

  bool empty() const { return value_.empty(); }
  // Not to be kept, logged or put into an error's detail.
  std::string_view reveal() const { return value_; }

 private:
  void wipe() {
    // Volatile, so that the stores to memory that is about to be freed are not left out.
    volatile char* bytes = value_.data();
    for (std::size_t i = 0; i < value_.size(); ++i) bytes[i] = 0;
    value_.clear();
  }
  std::string value_;
};

}  // namespace sarsen
