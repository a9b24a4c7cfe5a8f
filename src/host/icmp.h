// ICMP and ICMPv6 messages that a host or router makes itself (RFC 792, RFC 1812 4.3, RFC 4443).
// Plain functions over the caller's bytes.
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
  host_unreachable,  ///< nobody answers there, address unreachable
  port_unreachable,
};

/// Bytes that a message may take, its IP header included: as much of what it quotes as these allow
/// (RFC 1812, 4.3.2.3; RFC 4443, 2.4 c).
template <class A>
inline constexpr unsigned kIcmpErrorBytes = A::kBytes == 4 ? 576 : 1280;

/// Whether an error may be sent about this packet at all: not about errors, nor about what went to
/// several or came from nobody in particular (RFC 1122, 3.2.2; RFC 4443, 2.4 e).
template <class A>
bool may_answer_with_error(std::span<const std::byte> packet, const Headers& headers);

/// An error about the packet whose IP header and what follows are `about`, from `source` to the
/// sender of that; `mtu` is that of the next link, for `too_big`. Written at `to`, which has room
/// for `kIcmpErrorBytes`; returns its bytes.
template <class A>
unsigned write_icmp_error(std::byte* to, IcmpError error, const A& source,
                          std::span<const std::byte> about, unsigned mtu);

/// Whether the packet asks for an echo.
bool is_echo_request(const std::byte* packet, const Headers& headers);
/// Turns a packet round: its ends change places, the hop limit begins anew.
void swap_ends(std::byte* packet, const Headers& headers);
/// Makes an echo request its own answer: ends change places, the hop limit begins anew. Only the
/// headers are read, so a wrong checksum stays wrong.
void make_echo_reply(std::byte* packet, const Headers& headers);

}  // namespace millrace
