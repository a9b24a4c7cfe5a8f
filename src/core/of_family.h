// Choice between two objects, of which one is for IPv4 and one for IPv6.
#pragma once

#include <type_traits>

#include "millrace/key.h"

namespace millrace {

/// Returns `v4` or `v6`, by the family of `Of`, which is the type of an address or a key.
template <class Of, class V4, class V6>
constexpr auto& of_family(V4& v4, V6& v6) {
  if constexpr (std::is_same_v<Of, AddressV4> || std::is_same_v<Of, KeyV4>) {
    return v4;
  } else {
    static_assert(std::is_same_v<Of, AddressV6> || std::is_same_v<Of, KeyV6>);
    return v6;
  }
}

}  // namespace millrace
