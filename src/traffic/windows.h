// Multiplies a capture: several copies of it at the same time ("windows"), each with addresses and
// ports of its own.
#pragma once

#include <functional>

#include "millrace/key.h"
#include "millrace/types.h"
#include "port/capture.h"

namespace millrace {

/// Addresses that stay unchanged in every window, unless both ends of a packet have such an
/// address. An empty function keeps none.
///
/// With services configured these are the virtual addresses and the backends, so that every
/// window's packets still belong to a service. A service that takes everything (0.0.0.0/0) has no
/// such address.
struct Shift {
  std::function<bool(const AddressV4&)> keep_v4;
  std::function<bool(const AddressV6&)> keep_v6;
};

/// Returns `capture` `count` times (1 or more): each packet is followed by its copies, at the same
/// time. Window 0 is the unchanged capture. In window w
///
/// - an end of a packet is shifted unless its address is kept; if both ends are kept, both are
///   shifted nevertheless, since the windows would coincide otherwise;
/// - a shifted address becomes a new address: the same one throughout the window, so that both
///   directions of a conversation shift alike, and another one for every other address. No two
///   windows share a new address, and no new address occurs in the capture or is kept: connections
///   of different windows never coincide;
/// - a shifted port p above 0 becomes 1 + (p - 1 + w) mod 65535; so does an ICMP identifier if both
///   ends are shifted, else it stays.
///
/// New IPv4 addresses are unicast, outside of 0/8, 10/8, 127/8 and 169.254/16; all new IPv6
/// addresses have the same unique local prefix. Checksums stay as right or wrong as they are.
/// Packets without a key (ARP, fragments after the first, ICMP errors, ...) are copied unchanged.
///
/// Errors: usage (count 0), failed (not enough memory or free addresses, too many packets).
Result<Capture> windows(const Capture& capture, unsigned count, const Shift& shift);

}  // namespace millrace
