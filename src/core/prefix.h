// Address prefixes, and their text. Plain functions; any thread may call them.
#pragma once

#include <compare>
#include <string>

#include "core/address.h"

namespace millrace {

/// An address prefix.
template <class A>
struct Prefix {
  A address;                      ///< all bits behind the prefix are 0
  unsigned bits = 8 * A::kBytes;  ///< length of the prefix; all bits: one address

  bool contains(const A& other) const { return prefix_of(other, bits) == address; }
  friend auto operator<=>(const Prefix&, const Prefix&) = default;
};

/// Returns "10.0.0.0/8", or "10.0.0.1" for a whole address.
template <class A>
std::string to_string(const Prefix<A>& prefix) {
  const std::string address = to_string(prefix.address);
  return prefix.bits == 8 * A::kBytes ? address : address + "/" + std::to_string(prefix.bits);
}

}  // namespace millrace
