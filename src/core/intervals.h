// A function from whole numbers to values that is constant between few bounds, searched by
// bisection.
//
// The owner makes the object; then any thread may search it.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace millrace {

/// `Number` is unsigned; all its `kBits` bits may be set.
template <class Number, unsigned kBits = 8 * sizeof(Number)>
class Intervals {
 public:
  /// A bound: the value from this number on.
  struct Bound {
    Number from;
    std::uint32_t value;
  };
  /// Below the first of the bounds, which must be ascending, the value is `below`. Of several
  /// bounds at one number the last counts.
  explicit Intervals(const std::vector<Bound>& bounds = {}, std::uint32_t below = 0xffffffff) {
    from_.push_back(0);
    values_.push_back(below);
    for (const auto& [from, value] : bounds) {
      if (from_.back() != from) {
        from_.push_back(from);
        values_.push_back(value);
      }
      values_.back() = value;
    }
    index();
  }

  std::uint32_t find(Number sought) const {
    // All bounds with the same first bits as `sought` lie between two entries of `first_`.
    const auto top = static_cast<std::size_t>(sought >> shift_);
    const Number* low = from_.data() + first_[top];
    std::size_t left = first_[top + 1] - first_[top];
    // Bisects without a branch that could be mispredicted. In the end `low` is behind the last
    // bound that is not above `sought`; there is one, as the first bound is 0.
    while (left > 0) {
      const std::size_t half = (left + 1) / 2;
      low += low[half - 1] <= sought ? half : 0;
      left -= half;
    }
    return values_[static_cast<std::size_t>(low - from_.data()) - 1];
  }

  std::size_t memory_bytes() const {
    return from_.capacity() * sizeof(Number) +
           (values_.capacity() + first_.capacity()) * sizeof(std::uint32_t);
  }

 private:
  /// Counts the bounds below each value of a number's first bits. There are about as many values as
  /// bounds.
  void index() {
    constexpr unsigned kMostTopBits = std::min(16U, kBits - 1);
    const unsigned top =
        std::clamp(static_cast<unsigned>(std::bit_width(from_.size())), 1U, kMostTopBits);
    shift_ = kBits - top;
    first_.assign((std::size_t{1} << top) + 1, 0);
    for (const Number from : from_) ++first_[static_cast<std::size_t>(from >> shift_) + 1];
    std::partial_sum(first_.begin(), first_.end(), first_.begin());
  }

  std::vector<Number> from_;  // ascending
  std::vector<std::uint32_t> values_;
  std::vector<std::uint32_t> first_;
  unsigned shift_ = 0;
};

}  // namespace millrace
