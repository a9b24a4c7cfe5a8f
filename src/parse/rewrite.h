// Writes the changes that functions make to packets, and updates checksums.
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

/// One of a packet's two ends.
enum class End : std::uint8_t { source, destination };

namespace detail {

template <class K>
using IpOf = std::conditional_t<std::is_same_v<K, KeyV4>, Ipv4, Ipv6>;

/// Offset, by protocol, of the Internet checksum that covers the pseudo header; 0 if there is none.
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

/// Writes a port of an SCTP packet, and updates the CRC32c as `millrace::rewrite` says.
void rewrite_sctp_port(End end, std::byte* packet, const Headers& headers, std::uint16_t port);

/// Writes the identifier of an ICMP query, which has the same offset in both families, and updates
/// the checksum.
void rewrite_icmp_identifier(std::byte* packet, const Headers& headers, std::uint16_t identifier);

/// Stores `address` at `at`, and adds the change to `difference`.
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

/// Updates a transport checksum. A UDP checksum of 0 means none (RFC 768), and stays; UDP-Lite's
/// must not be 0 (RFC 3828, 3.1). For UDP and UDP-Lite a result of 0 is written as all ones, which
/// is the same number; the other protocols have no such rule.
inline void update_transport_checksum(std::byte* at, std::uint8_t protocol,
                                      const Difference& difference) {
  const auto was = load<std::uint16_t>(at);
  if (was == 0 && protocol == kProtocolUdp) [[unlikely]]
    return;
  std::uint16_t is = difference.apply_to(was);
  if (is == 0 && (protocol == kProtocolUdp || protocol == kProtocolUdpLite)) [[unlikely]]
    is = 0xffff;
  store(at, is);
}

/// Writes the ends of `is` that the template arguments choose.
template <class K, bool source, bool destination>
[[gnu::always_inline]] inline void rewrite(std::byte* packet, const Headers& headers, const K& is) {
  using Ip = IpOf<K>;
  std::byte* const ip = packet + headers.l3;
  std::byte* const payload = packet + headers.l4;

  Difference difference;
  if (source) replace_address(ip + Ip::kSource, is.source, difference);
  if (destination)
    replace_address(ip + Ip::kSource + K::Address::kBytes, is.destination, difference);
  if constexpr (Ip::kFamily == 4) update_checksum(ip + 10, difference);

  if (headers.protocol == kProtocolSctp) [[unlikely]] {
    if (source) rewrite_sctp_port(End::source, packet, headers, is.source_port);
    if (destination) rewrite_sctp_port(End::destination, packet, headers, is.destination_port);
    return;
  }
  if (has_ports(headers.protocol)) {
    if (source) replace_port(payload, is.source_port, difference);
    if (destination) replace_port(payload + 2, is.destination_port, difference);
  }
  const unsigned at = kChecksumAt<Ip>[headers.protocol];
  if (at == 0 || headers.l4 + at + 2 > headers.l4_end) return;
  update_transport_checksum(payload + at, headers.protocol, difference);
}

/// Writes both ends; in an ICMP query, the addresses and the identifier that differ.
template <class K>
void rewrite_both(std::byte* packet, const Headers& headers, const K& was, const K& is);

}  // namespace detail

/// Rewrites a packet from the key `was` to the key `is`, of the same protocol: writes the ends or
/// the identifier that differ. `headers` are the parser's for this packet with the verdict
/// `tracked`, or with `icmp_error` if only addresses differ; the family is `K`'s. No byte at or
/// beyond `headers.l4_end` is read or written.
///
/// The IPv4 header checksum and the checksum of TCP, UDP, UDP-Lite, DCCP, ICMPv6 and, for an
/// identifier, ICMP are updated incrementally (RFC 1624, equation 3): a right one stays right, a
/// wrong one stays exactly as wrong (modulo 0xffff: 0xffff and 0 are the same number). A UDP
/// checksum of 0 is kept; a UDP or UDP-Lite checksum that becomes 0 is written as 0xffff. SCTP's
/// CRC32c covers ports but no addresses. It is updated by the packet's length on the wire, so it
/// stays right in a capture that is cut short. In the first fragment of a datagram, whose whole
/// length is unknown, the CRC32c stays as it is. A checksum field that was not captured is not
/// touched.
template <class K>
inline void rewrite(std::byte* packet, const Headers& headers, const K& was, const K& is) {
  const bool source = was.source != is.source || was.source_port != is.source_port;
  const bool destination =
      was.destination != is.destination || was.destination_port != is.destination_port;
  if (source && !destination) return detail::rewrite<K, true, false>(packet, headers, is);
  if (destination && !source) return detail::rewrite<K, false, true>(packet, headers, is);
  if (source) detail::rewrite_both(packet, headers, was, is);
}

/// Lowers the MSS option of a SYN to `mss` bytes if it is larger, and updates the checksum.
void clamp_mss(std::byte* packet, const Headers& headers, std::uint16_t mss);
/// Lowers the MSS option of each packet in `has_mss` to the packet's `mss`.
void clamp_mss(Burst& burst);

/// Clears the changes of a family's packets. To be called before functions serve a burst.
template <class K>
void begin_serving(Burst& burst) {
  burst.lane<K>().changed.fill(0);
  burst.lane<K>().idle = 0;
}
/// Writes the changes that functions asked for into the family's packets.
template <class K>
void rewrite(Burst& burst);

}  // namespace millrace
