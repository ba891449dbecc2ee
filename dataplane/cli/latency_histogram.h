// LatencyHistogram: how long operations took, in a fixed amount of memory: steps of 1/64 of the
// value, which is finer than two runs agree.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace sarsen {

class LatencyHistogram {
 public:
  void add(std::uint64_t ns) {
    ++counts_[index_of(ns)];
    ++count_;
    sum_ns_ += ns;
    most_ns_ = std::max(most_ns_, ns);
  }
  std::uint64_t count() const { return count_; }
  std::uint64_t most_ns() const { return most_ns_; }
  std::uint64_t mean_ns() const { return count_ == 0 ? 0 : sum_ns_ / count_; }
  // The time within which `share` (0 to 1) of the operations ended.
  std::uint64_t percentile_ns(double share) const {
    const double wanted = share * static_cast<double>(count_);
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      seen += counts_[i];
      if (seen > 0 && static_cast<double>(seen) >= wanted) return std::min(most_of(i), most_ns_);
    }
    return most_ns_;
  }

 private:
  static constexpr unsigned kBits = 6;  // of a value that are told apart
  // Values below 2^kBits have an index each; then each power of two has 2^kBits.
  static std::size_t index_of(std::uint64_t value) {
    const auto width = static_cast<unsigned>(std::bit_width(value));
    if (width <= kBits) return value;
    const unsigned shift = width - kBits - 1;
    return (std::size_t{shift} << kBits) + (value >> shift);
  }
  static std::uint64_t most_of(std::size_t index) {
    if (index < (std::size_t{2} << kBits)) return index;
    const std::size_t shift = (index >> kBits) - 1;
    const std::uint64_t leading = index - (shift << kBits);
    return ((leading + 1) << shift) - 1;
  }

  std::vector<std::uint64_t> counts_ = std::vector<std::uint64_t>(std::size_t{64} << kBits);
  std::uint64_t count_ = 0;
  std::uint64_t sum_ns_ = 0;
  std::uint64_t most_ns_ = 0;
};

}  // namespace sarsen
