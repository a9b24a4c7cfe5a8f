// A table that finds the longest of many prefixes that contain an address. It is made in the time
// of a sort. As prefixes nest, each knows the next wider one: so all prefixes that contain an
// address make a chain.
//
// The owner makes a table; then any thread may search it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <type_traits>
#include <vector>

#include "core/intervals.h"
#include "core/prefix.h"
#include "millrace/key.h"

namespace millrace {

template <class A>
class PrefixTable {
 public:
  static constexpr std::uint32_t kNone = 0xffffffff;

  PrefixTable() = default;
  /// Makes a table of distinct prefixes. The other functions return places in `all`.
  explicit PrefixTable(std::span<const Prefix<A>> all);

  /// Returns the longest prefix that contains the address; `kNone` if there is none.
  std::uint32_t find(const A& address) const { return longest_.find(number(address)); }
  bool has(const A& address) const { return find(address) != kNone; }
  /// Returns the longest prefix that contains the prefix `i` and is shorter; `kNone` if there is
  /// none.
  std::uint32_t around(std::uint32_t i) const { return around_[i]; }
  /// Calls `each(i)` for all prefixes that contain the address, the longest first.
  template <class Each>
  void for_each_around(const A& address, Each&& each) const {
    for (std::uint32_t i = find(address); i != kNone; i = around_[i]) each(i);
  }

  std::size_t memory_bytes() const {
    return longest_.memory_bytes() + around_.capacity() * sizeof(std::uint32_t);
  }

 private:
  static constexpr unsigned kBits = 8 * A::kBytes;
  __extension__ using Wide = unsigned __int128;
  using Number = std::conditional_t<A::kBytes == 4, std::uint32_t, Wide>;
  using Longest = Intervals<Number>;

  static Number number(const A& address) {
    Number value = 0;
    for (const std::uint8_t byte : address.bytes) value = value << 8 | byte;
    return value;
  }
  /// Returns the last address of a prefix.
  static Number last_of(const Prefix<A>& prefix) {
    const Number all = ~Number{0};
    return number(prefix.address) | (prefix.bits == 0 ? all : ~(all << (kBits - prefix.bits)));
  }

  Longest longest_;
  std::vector<std::uint32_t> around_;  // by prefix
};

template <class A>
PrefixTable<A>::PrefixTable(std::span<const Prefix<A>> all) : around_(all.size(), kNone) {
  std::vector<std::uint32_t> order(all.size());
  std::iota(order.begin(), order.end(), 0U);
  // A prefix comes before those that it contains.
  std::ranges::sort(order, {}, [&all](std::uint32_t i) { return all[i]; });
  std::vector<typename Longest::Bound> bounds;
  std::vector<std::uint32_t> open;  // the prefixes around the present place, the longest last
  const auto close = [&] {
    const Number last = last_of(all[open.back()]);
    open.pop_back();
    if (last != ~Number{0}) bounds.push_back({last + 1, open.empty() ? kNone : open.back()});
  };
  for (const std::uint32_t i : order) {
    const Number begin = number(all[i].address);
    while (!open.empty() && last_of(all[open.back()]) < begin) close();
    if (!open.empty()) around_[i] = open.back();
    open.push_back(i);
    bounds.push_back({begin, i});
  }
  while (!open.empty()) close();
  longest_ = Longest(bounds);
}

}  // namespace millrace
