// The keys of a burst whose look-up goes on beyond the place where it begins.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace millrace {

/// What the stages of a table's pipeline hand on about a burst of at most 64 keys. A hint: look-ups
/// of that burst are right whichever of its keys are in it. Apart from each other, keys that go on
/// and keys that do not are each looked up without a branch that is often mispredicted.
class Stragglers {
 public:
  Stragglers() = default;
  explicit Stragglers(bool may_open) : may_open_(may_open) {}

  /// Whether keys that are not found will be inserted.
  bool may_open() const { return may_open_; }
  void add(std::size_t key) { keys_ |= std::uint64_t{1} << key; }

  /// Calls `each(i)` for every straggler.
  template <class Each>
  void for_each(Each&& each) const {
    for_each_in(keys_, each);
  }
  /// And for every other one of `count` keys.
  template <class Each>
  void for_each_other(std::size_t count, Each&& each) const {
    const std::uint64_t all = count < 64 ? (std::uint64_t{1} << count) - 1 : ~std::uint64_t{0};
    for_each_in(all & ~keys_, each);
  }
  /// Calls `each(i)` for every one of `count` keys, the stragglers last.
  template <class Each>
  void for_each_last(std::size_t count, Each&& each) const {
    for_each_other(count, each);
    for_each(each);
  }

 private:
  template <class Each>
  static void for_each_in(std::uint64_t keys, Each& each) {
    for (; keys != 0; keys &= keys - 1) each(static_cast<std::size_t>(std::countr_zero(keys)));
  }

  std::uint64_t keys_ = 0;
  bool may_open_ = false;
};

}  // namespace millrace
