// The keys of a burst that seem to need a lookup beyond their first bucket.
#pragma once

#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>

namespace millrace {

/// A set of keys of one burst that the stages of a table's pipeline pass on. It is a hint: lookups
/// of the burst are right whichever keys are in the set. Looking up the keys in the set apart from
/// the rest avoids a branch that is often mispredicted. Only one thread may use an instance.
class Stragglers {
 public:
  /// The largest number of keys in a burst.
  static constexpr std::size_t kMax = 64;

  Stragglers() = default;
  explicit Stragglers(bool may_open) : may_open_(may_open) {}

  /// True if keys that are not found will be inserted.
  bool may_open() const { return may_open_; }
  void add(std::size_t key) {
    assert(key < kMax);
    keys_ |= std::uint64_t{1} << key;
  }

  /// Calls `each(i)` for every straggler among the first `count` keys.
  template <class Each>
  void for_each(std::size_t count, Each&& each) const {
    for_each_in(keys_ & all(count), each);
  }
  /// Calls `each(i)` for every key among the first `count` that is not a straggler.
  template <class Each>
  void for_each_other(std::size_t count, Each&& each) const {
    for_each_in(~keys_ & all(count), each);
  }
  /// Calls `each(i)` for the first `count` keys, stragglers last.
  template <class Each>
  void for_each_last(std::size_t count, Each&& each) const {
    for_each_other(count, each);
    for_each(count, each);
  }

 private:
  static std::uint64_t all(std::size_t count) {
    assert(count <= kMax);
    return count < kMax ? (std::uint64_t{1} << count) - 1 : ~std::uint64_t{0};
  }
  template <class Each>
  static void for_each_in(std::uint64_t keys, Each& each) {
    for (; keys != 0; keys &= keys - 1) each(static_cast<std::size_t>(std::countr_zero(keys)));
  }

  std::uint64_t keys_ = 0;
  bool may_open_ = false;
};

}  // namespace millrace
