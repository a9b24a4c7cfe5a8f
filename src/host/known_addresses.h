// A set of addresses that few packets have. A filter ends most searches for addresses that are not
// in the set.
//
// Built once, never changed; any thread may search.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "millrace/key.h"

namespace millrace {

template <class A>
class KnownAddresses {
 public:
  explicit KnownAddresses(std::vector<A> all) : all_(std::move(all)) {
    std::ranges::sort(all_);
    // About one of 64 addresses outside the set passes the filter, or fewer; one of 26 if the set
    // has ten thousand addresses, since a larger filter would not stay in a cache.
    const auto places = std::clamp<std::size_t>(std::bit_ceil(64 * all_.size()), 1024, 1U << 18);
    filter_.assign(places, 0);
    shift_ = 32U - static_cast<unsigned>(std::countr_zero(places));
    for (const A& address : all_) filter_[place(address)] = 1;
  }

  /// Returns 0 for nearly all addresses that are not in the set, and for none that is.
  std::uint8_t may_contain(const A& address) const { return filter_[place(address)]; }
  bool contains(const A& address) const {
    return may_contain(address) != 0 && std::ranges::binary_search(all_, address);
  }

 private:
  std::uint32_t place(const A& address) const {
    std::uint32_t word;
    if constexpr (A::kBytes == 4) {
      word = std::bit_cast<std::uint32_t>(address);
    } else {
      std::array<std::uint64_t, 2> halves;
      std::memcpy(halves.data(), address.bytes.data(), sizeof halves);
      const std::uint64_t both = halves[0] + halves[1];
      word = static_cast<std::uint32_t>(both ^ both >> 32);
    }
    return word * 0x9e3779b1U >> shift_;
  }

  std::vector<A> all_;  ///< sorted
  std::vector<std::uint8_t> filter_;
  unsigned shift_;  ///< shift from a 32-bit hash to a place
};

}  // namespace millrace
