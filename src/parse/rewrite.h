// Writing addresses and ports into a packet, with its checksums.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/burst.h"
#include "millrace/key.h"

namespace millrace {

/// Which end of a packet is meant.
enum class End : std::uint8_t { source, destination };

/// Writes `address` and, where the protocol at `headers.l4` has ports, `port` (host byte order) as
/// that end of the packet. The IPv4 header checksum and the checksum of TCP, UDP and ICMPv6 are
/// updated incrementally (RFC 1624, equation 3): a right one stays right, a wrong one stays exactly
/// as wrong. A UDP checksum of 0 is kept; SCTP's CRC32c does not cover addresses, and is updated for
/// its ports. A checksum field that was not captured is not touched; no byte at or beyond `length`
/// is read or written. `headers` are those that the parser wrote for this packet.
template <class K>
void rewrite(End end, std::byte* packet, std::uint16_t length, const Headers& headers,
             const typename K::Address& address, std::uint16_t port);

}  // namespace millrace
