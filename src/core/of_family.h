// What there is once for each address family.
#pragma once

#include <type_traits>

#include "millrace/key.h"

namespace millrace {

/// Returns that of both which is of the family of `Of`, an address or a key.
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
