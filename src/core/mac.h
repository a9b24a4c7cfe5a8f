// An Ethernet address.
#pragma once

#include <array>
#include <compare>
#include <cstdint>

namespace millrace {

struct Mac {
  std::array<std::uint8_t, 6> bytes{};

  /// True for the address of one station: neither a group's nor all zero.
  constexpr bool is_unicast() const { return (bytes[0] & 1) == 0 && *this != Mac{}; }

  friend constexpr auto operator<=>(const Mac&, const Mac&) = default;
};

inline constexpr Mac kBroadcast{{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}};

}  // namespace millrace
