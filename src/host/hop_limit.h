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
  Difference difference;
  const auto was = detail::load<std::uint16_t>(ip + 8);
  ip[8] = std::byte{value};
  difference.replace(was, detail::load<std::uint16_t>(ip + 8));
  detail::store(ip + 10, difference.apply_to(detail::load<std::uint16_t>(ip + 10)));
}

}  // namespace millrace
