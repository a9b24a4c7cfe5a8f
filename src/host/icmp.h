// ICMP and ICMPv6 messages that a host or router makes (RFC 792, RFC 1812 4.3, RFC 4443). Plain
// functions over the caller's bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/burst.h"
#include "millrace/key.h"

namespace millrace {

enum class IcmpError : std::uint8_t {
  hop_limit,         ///< time exceeded in transit
  too_big,           ///< fragmentation needed, packet too big
  no_route,          ///< network unreachable, no route to destination
  host_unreachable,  ///< host unreachable, address unreachable
  port_unreachable,
  prohibited,  ///< communication administratively prohibited
};

/// Largest message in bytes, including its IP header; the quoted packet is cut to fit (RFC 1812,
/// 4.3.2.3; RFC 4443, 2.4 c).
template <class A>
inline constexpr unsigned kIcmpErrorBytes = A::kBytes == 4 ? 576 : 1280;

/// True if an ICMP error may be sent about this packet. False for a later IPv4 fragment, for an
/// ICMP message that is no query or is cut short, and if source or destination is not a single host
/// (RFC 1122, 3.2.2; RFC 4443, 2.4 e).
template <class A>
bool may_answer_with_error(std::span<const std::byte> packet, const Headers& headers);

/// Writes an error at `to`, which has room for `kIcmpErrorBytes`, and returns its length in bytes.
/// `about` is the packet that the error is about, from its IP header on; the error goes from
/// `source` to the packet's sender. `mtu` is the next link's, for `too_big`.
template <class A>
unsigned write_icmp_error(std::byte* to, IcmpError error, const A& source,
                          std::span<const std::byte> about, unsigned mtu);

/// True for an echo request.
bool is_echo_request(const std::byte* packet, const Headers& headers);
/// Swaps a packet's source and destination address, and resets its hop limit.
void swap_ends(std::byte* packet, const Headers& headers);
/// Turns an echo request into its reply: swaps the addresses, and resets the hop limit. The
/// checksum is updated, not computed, so a wrong one stays wrong.
void make_echo_reply(std::byte* packet, const Headers& headers);

}  // namespace millrace
