// The field by which packets do not circle for ever: time to live, hop limit. Plain functions over
// a packet whose headers were parsed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/burst.h"
#include "parse/bytes.h"
#include "parse/checksum.h"

namespace millrace {

/// That of a packet which begins here (RFC 1700; Linux's default).
inline constexpr std::uint8_t kFirstHopLimit = 64;

inline std::uint8_t hop_limit(const std::byte* packet, const Headers& headers) {
  return detail::u8(packet + headers.l3 + (headers.family == 4 ? 8 : 7));
}

/// IPv4's header checksum stays as right as it was.
inline void set_hop_limit(std::byte* packet, const Headers& headers, std::uint8_t value) {
  std::byte* const ip = packet + headers.l3;
  if (headers.family != 4) {
    ip[7] = std::byte{value};
    return;
  }
  // Without the byte beside: a word that is read back right after half of it was written waits.
  const auto word = [](std::byte first) {
    return detail::big_endian(static_cast<std::uint16_t>(std::to_integer<unsigned>(first) << 8));
  };
  Difference difference;
  difference.replace(word(ip[8]), word(std::byte{value}));
  ip[8] = std::byte{value};
  detail::store(ip + 10, difference.apply_to(detail::load<std::uint16_t>(ip + 10)));
}

/// Takes one off the hop limit. IPv4's header checksum stays as right as it was: it grows by what
/// the header's sum loses, in one's complement (RFC 1141, with zero as RFC 1624 has it).
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
