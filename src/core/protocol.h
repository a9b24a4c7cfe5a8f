// IP protocol numbers (IANA) that the line uses, those of IPv6's extension headers included.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace millrace {

inline constexpr std::uint8_t kProtocolHopByHop = 0;
inline constexpr std::uint8_t kProtocolIcmp = 1;
inline constexpr std::uint8_t kProtocolTcp = 6;
inline constexpr std::uint8_t kProtocolUdp = 17;
inline constexpr std::uint8_t kProtocolDccp = 33;
inline constexpr std::uint8_t kProtocolRouting = 43;
inline constexpr std::uint8_t kProtocolFragment = 44;
inline constexpr std::uint8_t kProtocolGre = 47;
inline constexpr std::uint8_t kProtocolEsp = 50;
inline constexpr std::uint8_t kProtocolAuthentication = 51;
inline constexpr std::uint8_t kProtocolIcmpV6 = 58;
inline constexpr std::uint8_t kProtocolDestinationOptions = 60;
inline constexpr std::uint8_t kProtocolSctp = 132;
inline constexpr std::uint8_t kProtocolUdpLite = 136;

/// Returns the protocol's name ("tcp"), or its number as text if `protocols` has no name for it.
std::string protocol_name(std::uint8_t protocol);
/// Returns the protocols that have names in configurations and lists.
std::span<const std::pair<std::string_view, std::uint8_t>> protocols();

namespace detail {
/// Makes `has_ports` a table lookup: branches on the protocol would be mispredicted in mixed
/// traffic.
inline constexpr auto kHasPorts = [] {
  std::array<bool, 256> has{};
  for (const auto protocol :
       {kProtocolTcp, kProtocolUdp, kProtocolDccp, kProtocolSctp, kProtocolUdpLite})
    has[protocol] = true;
  return has;
}();
}  // namespace detail

/// True for TCP, UDP, DCCP, SCTP and UDP-Lite: the line reads and rewrites their ports, and a
/// service may have a port only with one of them.
constexpr bool has_ports(std::uint8_t protocol) { return detail::kHasPorts[protocol]; }

/// True for TCP and SCTP: their packets say when a connection begins and ends, and hold numbers by
/// which the tracker knows that a packet is of one of the ends.
constexpr bool has_handshake(std::uint8_t protocol) {
  return protocol == kProtocolTcp || protocol == kProtocolSctp;
}

}  // namespace millrace
