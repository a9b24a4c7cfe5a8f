// Parses a burst, from bytes to keys. A plain function over the caller's burst; any thread.
//
// docs/parse.md says what is read, how far, and where the parser stops.
#pragma once

#include "core/burst.h"
#include "core/link_type.h"

namespace millrace {

/// Largest number of steps from the link header to the IP header: each tag, label or other header
/// that is skipped is a step, and so is reading the IP version where no EtherType tells it.
inline constexpr unsigned kMaxLinkHeaders = 16;
/// Largest number of extension headers that are skipped.
inline constexpr unsigned kMaxExtensions = 8;
/// A packet's extension headers must end within this many bytes from its beginning. Ports and
/// checksum, which are read or rewritten, lie within the next `kTransportBytes`.
inline constexpr unsigned kMaxReach = 448;
inline constexpr unsigned kTransportBytes = 18;  // up to the end of TCP's checksum
static_assert(kMaxReach + kTransportBytes <= kOfferedBytes);

/// Parses the burst for `link`. Reads `size`, `data` and `length`. Writes `headers` and `verdict`
/// of every packet, and the size of every lane. The key of each packet with `Verdict::tracked` is
/// filed in the lane of its family, with the packet's place; `signal` is written, too. An ICMP
/// error goes to the lane of quoted packets if `read_quote` (quote.h) finds a quoted packet; its
/// key there is the quoted packet's, reversed.
///
/// Only the outermost IP header counts. TCP, UDP, DCCP, SCTP and UDP-Lite have their ports; an ICMP
/// query has its identifier as both ports; all other protocols have 0. The zone is 0. `headers` is
/// complete if the verdict is `tracked`, `fragment`, `icmp_error` or `icmp_control` (then l3 < l4
/// <= l4_end <= length), and zero otherwise. No byte at or beyond `length` is read.
void parse(Burst& burst, LinkType link);

}  // namespace millrace
