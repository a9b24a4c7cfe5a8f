// The hop limit (IPv6) or time to live (IPv4). Plain functions over a packet with parsed headers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/burst.h"
#include "parse/bytes.h"
#include "parse/checksum.h"

namespace millrace {

/// The hop limit of the ICMP errors, echo replies and RSTs that the host makes (RFC 1700; Linux's
/// default).
inline constexpr std::uint8_t kFirstHopLimit = 64;

inline std::uint8_t hop_limit(const std::byte* packet, const Headers& headers) {
  return detail::u8(packet + headers.l3 + (headers.family == 4 ? 8 : 7));
}

/// Sets the hop limit. A correct IPv4 header checksum stays correct, a wrong one stays wrong.
inline void set_hop_limit(std::byte* packet, const Headers& headers, std::uint8_t value) {
  std::byte* const ip = packet + headers.l3;
  if (headers.family != 4) {
    ip[7] = std::byte{value};
    return;
  }
  // The other byte of the word counts as 0, as it does not change: reading the whole word right
  // after writing half of it would stall.
  const auto word = [](std::byte first) {
    return detail::big_endian(static_cast<std::uint16_t>(std::to_integer<unsigned>(first) << 8));
  };
  Difference difference;
  difference.replace(word(ip[8]), word(std::byte{value}));
  ip[8] = std::byte{value};
  detail::store(ip + 10, difference.apply_to(detail::load<std::uint16_t>(ip + 10)));
}

/// Decrements the hop limit. A correct IPv4 header checksum stays correct, a wrong one stays wrong:
/// the checksum grows by what the header's sum loses, in one's complement (RFC 1141, with zero as
/// in RFC 1624).
inline void decrement_hop_limit(std::byte* packet, const Headers& headers) {
  std::byte* const ip = packet + headers.l3;
  std::byte* const limit = ip + (headers.family == 4 ? 8 : 7);
  *limit = std::byte(std::to_integer<unsigned>(*limit) - 1);
  if (headers.family != 4) return;
  const std::uint32_t sum = std::uint32_t{detail::load<std::uint16_t>(ip + 10)} +
                            detail::big_endian<std::uint16_t>(0x100);
  detail::store(ip + 10, static_cast<std::uint16_t>(sum + (sum >= 0xffff ? 1 : 0)));
}

}  // namespace millrace
