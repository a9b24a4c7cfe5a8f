// The keys of a burst whose look-up goes on beyond the place where it begins.
#pragma once

#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>

namespace millrace {

/// What the stages of a table's pipeline hand on about a burst. A hint: look-ups of that burst are
/// right whichever of its keys are in it. Apart from each other, keys that go on and keys that do
/// not are each looked up without a branch that is often mispredicted.
class Stragglers {
 public:
  /// Keys of a burst at most.
  static constexpr std::size_t kMax = 64;

  Stragglers() = default;
  explicit Stragglers(bool may_open) : may_open_(may_open) {}

  /// Whether keys that are not found will be inserted.
  bool may_open() const { return may_open_; }
  void add(std::size_t key) {
    assert(key < kMax);
    keys_ |= std::uint64_t{1} << key;
  }

  /// Calls `each(i)` for every straggler of `count` keys.
  template <class Each>
  void for_each(std::size_t count, Each&& each) const {
    for_each_in(keys_ & all(count), each);
  }
  /// And for every other one.
  template <class Each>
  void for_each_other(std::size_t count, Each&& each) const {
    for_each_in(~keys_ & all(count), each);
  }
  /// Calls `each(i)` for all of `count` keys, the stragglers last.
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
