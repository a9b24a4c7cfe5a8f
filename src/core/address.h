// Addresses as text. Plain functions; any thread may call them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "millrace/key.h"

namespace millrace {

using AnyAddress = std::variant<AddressV4, AddressV6>;
using AnyKey = std::variant<KeyV4, KeyV6>;

/// Returns text like "10.0.0.1" or "fd00::1" (RFC 5952). `A` is `AddressV4` or `AddressV6`.
template <class A>
std::string to_string(const A& address);
std::string to_string(const AnyAddress& address);

/// Returns the address that `text` names; none if it is no address of `A`'s family.
template <class A>
std::optional<A> parse_address(std::string_view text);

/// Returns text like "10.0.0.1:80" or "[fd00::1]:80"; the address alone if `port` is 0.
template <class A>
std::string with_port(const A& address, std::uint16_t port);

/// Returns `address` with all bits behind the first `bits` cleared.
template <class A>
constexpr A prefix_of(A address, unsigned bits) {
  for (unsigned i = 0; i < A::kBytes; ++i) {
    const unsigned kept = bits > 8 * i ? bits - 8 * i : 0;
    if (kept < 8) address.bytes[i] &= static_cast<std::uint8_t>(0xff00U >> kept);
  }
  return address;
}

}  // namespace millrace
