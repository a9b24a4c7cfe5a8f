// Writing addresses and ports into a packet, with its checksums.
//
// A plain function over one packet; called by the worker that owns it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/burst.h"
#include "core/protocol.h"
#include "millrace/key.h"
#include "parse/bytes.h"
#include "parse/checksum.h"
#include "parse/ip.h"

namespace millrace {

/// Which end of a packet is meant.
enum class End : std::uint8_t { source, destination };

namespace detail {

template <class K>
using IpOf = std::conditional_t<std::is_same_v<K, KeyV4>, Ipv4, Ipv6>;

/// Where the Internet checksum that covers the pseudo header stands, by protocol; 0 where there is
/// none.
template <class Ip>
inline constexpr auto kChecksumAt = [] {
  std::array<std::uint8_t, 256> at{};
  at[kProtocolTcp] = 16;
  at[kProtocolUdp] = 6;
  at[kProtocolDccp] = 6;     // RFC 4340, 9.1
  at[kProtocolUdpLite] = 6;  // RFC 3828, 3.1
  if (Ip::kFamily == 6) at[kProtocolIcmpV6] = 2;
  return at;
}();

/// Writes a port and updates the CRC32c of SCTP.
void rewrite_sctp_port(End end, std::byte* packet, const Headers& headers, std::uint16_t port);

/// Stores the words of `address` at `at`.
template <class A>
void replace_address(std::byte* at, const A& address, Difference& difference) {
  const std::byte* from = std::as_bytes(std::span(address.bytes)).data();
  for (unsigned i = 0; i < A::kBytes; i += 4) {
    const auto word = load<std::uint32_t>(from + i);
    difference.replace(load<std::uint32_t>(at + i), word);
    store(at + i, word);
  }
}

inline void replace_port(std::byte* at, std::uint16_t port, Difference& difference) {
  const std::uint16_t word = big_endian(port);
  difference.replace(load<std::uint16_t>(at), word);
  store(at, word);
}

inline void update_checksum(std::byte* at, const Difference& difference) {
  store(at, difference.apply_to(load<std::uint16_t>(at)));
}

/// UDP's 0 means that there is none (RFC 768); UDP-Lite's must not be 0 (RFC 3828, 3.1). Both write
/// a result of 0 as all ones, the same number; DCCP does not.
inline void update_transport_checksum(std::byte* at, std::uint8_t protocol,
                                      const Difference& difference) {
  const auto was = load<std::uint16_t>(at);
  if (was == 0 && protocol == kProtocolUdp) return;
  const std::uint16_t is = difference.apply_to(was);
  const bool never_zero = protocol == kProtocolUdp || protocol == kProtocolUdpLite;
  store<std::uint16_t>(at, never_zero && is == 0 ? 0xffff : is);
}

}  // namespace detail

/// Writes `address` and, where the protocol at `headers.l4` is TCP, UDP or SCTP, `port` (host byte
/// order) as that end of the packet; for other protocols `port` is ignored. `headers` are those
/// that the parser wrote for this packet with the verdict `tracked`; of `K`'s family. No byte at or
/// beyond `length` is read or written.
///
/// The IPv4 header checksum and the checksum of TCP, UDP, UDP-Lite, DCCP and ICMPv6 are updated
/// incrementally (RFC 1624, equation 3): a right one stays right, a wrong one stays exactly as
/// wrong (modulo 0xffff: 0xffff and 0 are the same number). A UDP checksum of 0 is kept; a UDP or
/// UDP-Lite checksum that becomes 0 is written as 0xffff. SCTP's CRC32c covers ports but no
/// addresses; it is updated from the packet's length alone, so also where the capture is cut short.
/// It cannot be in the first fragment of a datagram, whose length is not known, and is left alone
/// there. A checksum field that was not captured is not touched.
template <class K>
inline void rewrite(End end, std::byte* packet, [[maybe_unused]] std::uint16_t length,
                    const Headers& headers, const typename K::Address& address,
                    std::uint16_t port) {
  using Ip = detail::IpOf<K>;
  std::byte* const ip = packet + headers.l3;
  std::byte* const payload = packet + headers.l4;
  const bool source = end == End::source;

  Difference difference;
  detail::replace_address(ip + Ip::kSource + (source ? 0 : K::Address::kBytes), address,
                          difference);
  if constexpr (Ip::kFamily == 4) detail::update_checksum(ip + 10, difference);

  if (headers.protocol == kProtocolSctp) [[unlikely]] {
    detail::rewrite_sctp_port(end, packet, headers, port);
    return;
  }
  if (has_ports(headers.protocol)) {
    detail::replace_port(payload + (source ? 0 : 2), port, difference);
  }
  const unsigned at = detail::kChecksumAt<Ip>[headers.protocol];
  if (at == 0 || headers.l4 + at + 2 > headers.l4_end) return;
  detail::update_transport_checksum(payload + at, headers.protocol, difference);
}

}  // namespace millrace
