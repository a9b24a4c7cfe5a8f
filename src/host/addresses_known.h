// A set of addresses that nearly no packet has: a filter of bits answers for all others.
//
// Built once, never changed; any thread may search it.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "millrace/key.h"

namespace millrace {

template <class A>
class KnownAddresses {
 public:
  explicit KnownAddresses(std::vector<A> all) : all_(std::move(all)) {
    std::ranges::sort(all_);
    // One other address in 64, at most, is searched for in vain.
    const auto bits = std::max<std::size_t>(std::bit_ceil(64 * all_.size()), 4096);
    filter_.assign(bits / 64, 0);
    shift_ = 32U - static_cast<unsigned>(std::countr_zero(bits));
    for (const A& address : all_) {
      const std::uint32_t at = place(address);
      filter_[at / 64] |= std::uint64_t{1} << at % 64;
    }
  }

  /// False for nearly all addresses that it does not contain.
  bool may_contain(const A& address) const {
    const std::uint32_t at = place(address);
    return (filter_[at / 64] >> at % 64 & 1) != 0;
  }
  bool contains(const A& address) const {
    return may_contain(address) && std::ranges::binary_search(all_, address);
  }

 private:
  std::uint32_t place(const A& address) const {
    std::uint32_t word;
    if constexpr (A::kBytes == 4) {
      word = std::bit_cast<std::uint32_t>(address);
    } else {
      std::uint64_t halves[2];
      std::memcpy(halves, address.bytes.data(), sizeof halves);
      const std::uint64_t both = halves[0] ^ std::rotl(halves[1], 32);
      word = static_cast<std::uint32_t>(both ^ both >> 32);
    }
    return word * 0x9e3779b1U >> shift_;
  }

  std::vector<A> all_;  ///< in order
  std::vector<std::uint64_t> filter_;
  unsigned shift_;  ///< of a hash of 32 bits, to that of a place
};

}  // namespace millrace
